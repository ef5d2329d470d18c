# SPDX-License-Identifier: Apache-2.0
"""Builds, saves and loads the frame index of a file, so that it is built once per dataset.

It is built from the moov box. Files whose moov box does not tell all (fragmented ones, trimmed
ones, codecs not known here) are demuxed by FFmpeg once, from the first byte to the last, which is
slow but always right.

A saved index is a magic word, the digest of what follows, and, compressed, one line of JSON and the
index's arrays as small differences: about 3 bytes a frame.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.container import InputContainer

from robostream import config
from robostream.decode.frame_index import CodecConfig, FrameIndex, Int64s, compact
from robostream.decode.mp4 import VideoTrack, check_frame_count, read_video_track
from robostream.errors import VideoFileError
from robostream.storage import ByteSource, SourceFile, open_private, write_bytes_atomic

_DEMUX_BUFFER_BYTES = 1 << 20
# A title that is no valid text is no reason to refuse the video. PyAV 19 never does.
_ANY_ALPHABET: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
)
_MAGIC = b"rsindex3"
_DIGEST_BYTES = 32

VideoPacket: TypeAlias = "av.Packet[av.VideoStream]"


def build_index(source: ByteSource) -> FrameIndex:
    """Return the frame index of a file, or raise VideoFileError."""
    track = read_video_track(source) or _demux(source)
    times, shown = track.times, np.flatnonzero(track.is_shown)
    if not len(shown):
        raise VideoFileError(f"{source.name}: the video has no frames. Record it again.")
    packets = shown[np.argsort(times[shown], kind="stable")]
    frame_of = np.full(len(times), -1, np.int64)
    frame_of[packets] = np.arange(len(packets))
    starts = _starts(source.name, track.is_key, frame_of, track.config_of)
    in_order = len(packets) == len(times) and bool(np.all(packets == np.arange(len(times))))
    return FrameIndex(
        file=source.name,
        file_bytes=source.size(),
        time_base=track.time_base,
        pts=compact(times[packets]),
        packets=None if in_order else compact(packets),
        frames=None if in_order else compact(frame_of),
        byte_offsets=compact(track.byte_offsets),
        sizes=compact(track.sizes),
        starts=compact(starts),
        start_frames=compact(np.maximum(frame_of[starts], 0)),
        configs=track.configs,
        start_configs=track.config_of[starts].astype(np.min_scalar_type(len(track.configs))),
    )


def _starts(
    file: str, is_key: npt.NDArray[np.bool_], frame_of: Int64s, config_of: Int64s
) -> Int64s:
    """Return the key packets that are shown after everything that precedes them in decode order.

    Decoding may begin at such a packet: every frame that is shown from it on is stored from it on.
    Any other key packet is decoded from the start before it. The first packet is always a start.
    """
    shown_before = np.concatenate([[-1], np.maximum.accumulate(frame_of)[:-1]])
    is_start = is_key & (frame_of > shown_before)
    is_start[0] = True
    if np.any(np.diff(config_of, prepend=config_of[0])[~is_start]):
        raise VideoFileError(
            f"{file}: the codec changes in the middle of a GOP. Re-encode the file."
        )
    return np.flatnonzero(is_start)


def _demux(source: ByteSource) -> VideoTrack:
    rows: list[tuple[int, int, int, bool, bool, int]] = []
    configs: list[CodecConfig] = []
    most = config.most_video_frames()
    try:
        file = SourceFile(source)
        with av.open(file, "r", buffer_size=_DEMUX_BUFFER_BYTES, **_ANY_ALPHABET) as container:
            stream = _video_stream(container, source)
            time_base = stream.time_base
            for packet in container.demux(stream):
                if not packet.size:
                    continue
                if len(rows) >= most:
                    check_frame_count(len(rows) + 1, source)
                changed = _new_extradata(packet)
                if changed or not configs:
                    context = stream.codec_context
                    extradata = changed or context.extradata or b""
                    size = context.width, context.height
                    configs.append(CodecConfig(context.name, extradata, *size))
                rows.append(_packet_row(packet, len(configs) - 1, source))
    except av.FFmpegError as error:
        raise VideoFileError(
            f"{source.name}: FFmpeg cannot read this as a video ({error.strerror}). Download or "
            "copy the file again."
        ) from error
    table = np.array(rows, np.int64).reshape(-1, 6)
    return VideoTrack(
        time_base=time_base or Fraction(1),
        byte_offsets=table[:, 0],
        sizes=table[:, 1],
        times=table[:, 2],
        is_key=table[:, 3] != 0,
        is_shown=table[:, 4] == 0,
        config_of=table[:, 5],
        configs=tuple(configs),
    )


def _video_stream(container: InputContainer, source: ByteSource) -> av.VideoStream:
    if not container.streams.video:
        raise VideoFileError(f"{source.name}: want a video track, found none.")
    stream = container.streams.video[0]
    if stream.codec_context is None:
        raise VideoFileError(
            f"{source.name}: the video is of a codec this FFmpeg does not know. Re-encode the file."
        )
    return stream


def _new_extradata(packet: VideoPacket) -> bytes:
    """Return the new codec set-up that a packet carries, if it does. PyAV 15 does not say."""
    has = getattr(packet, "has_sidedata", None)
    return bytes(packet.get_sidedata("new_extradata")) if has and has("new_extradata") else b""


def _packet_row(
    packet: VideoPacket, config: int, source: ByteSource
) -> tuple[int, int, int, bool, bool, int]:
    if packet.is_corrupt:
        raise VideoFileError(
            f"{source.name}: the packet at byte {packet.pos} is incomplete. The file is truncated; "
            "download or copy it again."
        )
    if packet.pts is None or packet.pos is None or packet.pos < 0:
        raise VideoFileError(
            f"{source.name}: a packet has no time or no place in the file, so its frame cannot be "
            "identified. Re-encode the file as a plain MP4."
        )
    return packet.pos, packet.size, packet.pts, packet.is_keyframe, packet.is_discard, config


def load_index(folder: Path, source: ByteSource, looked_since_s: float) -> FrameIndex | None:
    """Return the index saved for a file.

    Returns None if none was saved, if it was saved for a file of another version or size, or if it
    is damaged. The caller then makes the index and saves it again. Without a version nothing tells
    whether a file was replaced, so its index is taken only if it was made since `looked_since_s`.

    Args:
        folder: Where it would be saved.
        source: The file.
        looked_since_s: If somebody compared it with the file since then, the file is not looked at
            again: it is expected to be the same. So a remote file costs one look per machine and
            run, and all processes of a run read one version.
    """
    path = _path(folder, source.identity)
    try:
        # In this order: of an index that is being replaced, the older time is the one to trust.
        with open(open_private(path, os.O_RDONLY), "rb") as file:
            looked_s, content = os.fstat(file.fileno()).st_mtime, file.read()
    except OSError:
        return None
    body = content[len(_MAGIC) + _DIGEST_BYTES :]
    if content[: -len(body) or None] != _MAGIC + hashlib.sha256(body).digest():
        return None
    line, _, packed = zlib.decompress(body).partition(b"\n")
    head = json.loads(line)
    if (head["file"], head["identity"]) != (source.name, source.identity):
        return None
    if looked_s >= looked_since_s:
        source.expect(head["bytes"], head["version"])
    elif not head["version"] or (head["bytes"], head["version"]) != (
        source.size(),
        source.version(),
    ):
        return None
    else:
        _note_look(path)
    return _unpack(head, packed)


def save_index(folder: Path, index: FrameIndex, source: ByteSource) -> None:
    """Save the index of a file. Safe with several processes and after a crash."""
    head: dict[str, Any] = {
        "file": index.file,
        "bytes": index.file_bytes,
        "time_base": [index.time_base.numerator, index.time_base.denominator],
        "configs": [[c.decoder, c.extradata.hex(), c.width, c.height] for c in index.configs],
        "in_order": index.packets is None,
        "identity": source.identity,
        "version": source.version(),
    }
    ends = np.append(0, (index.byte_offsets.astype(np.int64) + index.sizes)[:-1])
    numbers = np.arange(index.num_frames)
    order = numbers if index.packets is None else index.packets
    arrays = {
        "sizes": index.sizes,
        "gaps": index.byte_offsets - ends,
        "steps": np.diff(index.pts.astype(np.int64), prepend=0),
        "moves": compact(order - numbers),
        "starts": compact(np.diff(index.starts, prepend=0)),
        "start_frames": compact(np.diff(index.start_frames, prepend=0)),
        "start_configs": index.start_configs,
    }
    head["arrays"] = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    parts = [json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays.values())]
    body = zlib.compress(b"".join(parts))
    content = _MAGIC + hashlib.sha256(body).digest() + body
    path = _path(folder, source.identity)
    # Not synced, which would take longer than to build it: its digest shows whether it is complete.
    write_bytes_atomic(path, content, is_private=True, is_durable=False)
    _note_look(path)


def drop_index(folder: Path, source: ByteSource) -> None:
    """Delete the index saved for a file, if there is one."""
    with suppress(OSError):
        _path(folder, source.identity).unlink()


def _note_look(path: Path) -> None:
    """Note that an index was compared with its file now, by this machine's clock."""
    with suppress(OSError):  # another user's, or just replaced
        os.utime(path, times=(time.time(),) * 2, follow_symlinks=False)


def _path(folder: Path, identity: str) -> Path:
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.index"


def _unpack(head: dict[str, Any], packed: bytes) -> FrameIndex:
    arrays: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for name, dtype, count in head["arrays"]:
        arrays[name] = np.frombuffer(packed, dtype, count, at)
        at += arrays[name].nbytes
    sizes = arrays["sizes"].astype(np.int64)
    pts = np.cumsum(arrays["steps"])
    packets = frames = None
    if not head["in_order"]:
        packets = arrays["moves"] + np.arange(len(pts))
        frames = np.full(len(sizes), -1, np.int64)
        frames[packets] = np.arange(len(pts))
    return FrameIndex(
        file=head["file"],
        file_bytes=head["bytes"],
        time_base=Fraction(*head["time_base"]),
        pts=compact(pts),
        packets=None if packets is None else compact(packets),
        frames=None if frames is None else compact(frames),
        byte_offsets=compact(np.cumsum(arrays["gaps"]) + np.cumsum(sizes) - sizes),
        sizes=compact(sizes),
        starts=compact(np.cumsum(arrays["starts"])),
        start_frames=compact(np.cumsum(arrays["start_frames"])),
        configs=tuple(
            CodecConfig(decoder, bytes.fromhex(extradata), width, height)
            for decoder, extradata, width, height in head["configs"]
        ),
        start_configs=arrays["start_configs"],
    )
