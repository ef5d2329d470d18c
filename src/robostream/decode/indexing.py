# SPDX-License-Identifier: Apache-2.0
"""Builds the frame index of a file: from its moov box, or through FFmpeg if that is unusual.

Files whose moov box does not tell all (fragmented ones, trimmed ones, codecs not known here) are
demuxed by FFmpeg once, from the first byte to the last, which is slow but always right.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.container import InputContainer

from robostream import config
from robostream.decode.frame_index import CodecConfig, FrameIndex, Int64s, compact
from robostream.decode.mp4 import VideoTrack, check_frame_count, read_video_track
from robostream.errors import VideoFileError
from robostream.storage import ByteSource, SourceFile

_DEMUX_BUFFER_BYTES = 1 << 20
# A title that is no valid text is no reason to refuse the video. PyAV 19 never does.
_ANY_ALPHABET: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
)

VideoPacket: TypeAlias = "av.Packet[av.VideoStream]"


def build_index(source: ByteSource) -> FrameIndex:
    """Return the frame index of a file, or raise VideoFileError."""
    index = _index_of(source, read_video_track(source) or _demux(source))
    if not index.num_frames:
        raise VideoFileError(f"{source.name}: the video has no frames. Record it again.")
    return index


def _demux(source: ByteSource) -> VideoTrack:
    rows: list[tuple[int, int, int, bool, bool, int]] = []
    configs: list[CodecConfig] = []
    most = config.most_video_frames()
    try:
        with _open_container(source) as container:
            stream = _video_stream(container, source)
            time_base = stream.time_base
            for packet in container.demux(stream):
                if not packet.size:
                    continue
                if len(rows) >= most:
                    check_frame_count(len(rows) + 1, source)
                changed = _new_extradata(packet)
                if changed or not configs:
                    configs.append(_stream_config(stream, changed))
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


def _open_container(source: ByteSource) -> InputContainer:
    file = SourceFile(source)
    container: InputContainer = av.open(file, "r", buffer_size=_DEMUX_BUFFER_BYTES, **_ANY_ALPHABET)
    return container


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


def _stream_config(stream: av.VideoStream, changed: bytes) -> CodecConfig:
    context = stream.codec_context
    extradata = changed or context.extradata or b""
    return CodecConfig(context.name, extradata, context.width, context.height)


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


def _index_of(source: ByteSource, track: VideoTrack) -> FrameIndex:
    times, shown = track.times, np.flatnonzero(track.is_shown)
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
    if not len(frame_of):
        return np.zeros(0, np.int64)
    shown_before = np.concatenate([[-1], np.maximum.accumulate(frame_of)[:-1]])
    is_start = is_key & (frame_of > shown_before)
    is_start[0] = True
    if np.any(np.diff(config_of, prepend=config_of[0])[~is_start]):
        raise VideoFileError(
            f"{file}: the codec changes in the middle of a GOP. Re-encode the file."
        )
    return np.flatnonzero(is_start)
