# SPDX-License-Identifier: Apache-2.0
"""The sample table of an MP4's video track, read from its moov box alone.

The moov box is enough if the packets are listed in one table, the codecs are known here, and the
edit list, if there is one, only shifts the time axis.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.decode.frame_index import CodecConfig, Int64s
from robostream.errors import VideoFileError
from robostream.storage import ByteSource

# So much of each end of the file is read at first. It holds the moov box of a recording of an hour.
_END_BYTES = 32 * 1024
_LFS_POINTER = b"version https://git-lfs"
# FFmpeg's own "av1" decoder needs hardware; libdav1d is the one in PyAV's wheels.
_DECODERS = {
    b"avc1": "h264",
    b"avc3": "h264",
    b"hvc1": "hevc",
    b"hev1": "hevc",
    b"av01": "libdav1d",
    b"vp09": "vp9",
}
_CODEC_BOXES = (b"avcC", b"hvcC", b"av1C")
# A visual sample entry: 8 bytes of box header, 78 of fixed fields, then boxes.
_ENTRY_HEADER_BYTES = 86
# Boxes side by side, and entries of an edit list: a file has a few, a hostile one millions.
_MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class VideoTrack:
    """The packets of a video track in decode order.

    Attributes:
        time_base: Seconds per tick of `times`.
        byte_offsets: Where each packet begins in the file.
        sizes: Bytes of each packet.
        times: When the frame of each packet is shown, in ticks.
        is_key: Whether each packet is listed as a key packet.
        is_shown: Whether the frame of each packet is shown.
        config_of: Which of `configs` each packet needs.
        configs: Decoder set-ups.
    """

    time_base: Fraction
    byte_offsets: Int64s
    sizes: Int64s
    times: Int64s
    is_key: npt.NDArray[np.bool_]
    is_shown: npt.NDArray[np.bool_]
    config_of: Int64s
    configs: tuple[CodecConfig, ...]


def read_video_track(source: ByteSource) -> VideoTrack | None:
    """Return the video track's table, reading both ends of the file and no frame.

    None means that the table does not tell all: a fragmented or trimmed file, or an unknown codec.
    A file that is no MP4, is cut short or contradicts itself is a VideoFileError.
    """
    moov = _read_moov(source)
    try:
        return _parse_moov(moov, source)
    except (struct.error, IndexError, KeyError, ValueError, OverflowError) as error:
        if isinstance(error, VideoFileError):
            raise
        raise VideoFileError(
            f"{source.name}: the index of the video (its moov box) is damaged ({error}). Download "
            "or copy the file again."
        ) from error


def _read_moov(source: ByteSource) -> memoryview:
    size = source.size()
    start, window = 0, source.read(0, min(size, _END_BYTES))
    if window.startswith(_LFS_POINTER):
        raise VideoFileError(
            f"{source.name}: this is a Git LFS pointer of {size} bytes, not the video itself. Run "
            "`git lfs pull` in the dataset's folder."
        )
    at = 0
    for _ in range(_MOST_PARTS):
        if at + 8 > size:
            break
        if not start <= at <= start + len(window) - 16:
            start, window = at, source.read(at, min(size, at + _END_BYTES))
        kind, header_bytes, box_bytes = _box_header(window, at - start, size - at)
        if kind == b"moov":
            return _moov_content(source, window, start, (at + header_bytes, at + box_bytes))
        at += box_bytes
    raise VideoFileError(
        f"{source.name}: want an MP4 with an index (moov box), found none in {size} bytes that "
        f"start with {window[:12]!r}. The recording was cut off, the copy is incomplete, or this "
        "is no MP4."
    )


def _moov_content(
    source: ByteSource, window: bytes, start: int, bounds: tuple[int, int]
) -> memoryview:
    first, stop = bounds
    if stop > source.size():
        raise VideoFileError(
            f"{source.name}: the index of the video ends at byte {stop}, the file at byte "
            f"{source.size()}. It is truncated; download or copy it again."
        )
    if stop - first > config.MOST_VIDEO_INDEX_BYTES:
        raise VideoFileError(
            f"{source.name}: the index of the video has {stop - first:,} bytes; want at most "
            f"{config.MOST_VIDEO_INDEX_BYTES:,}. Record shorter files."
        )
    held = window[first - start : stop - start]
    missing = stop - first - len(held)
    rest = source.read(stop - missing, stop) if missing else b""
    return memoryview(held + rest)


def _box_header(content: bytes | memoryview, at: int, available: int) -> tuple[bytes, int, int]:
    size, kind = struct.unpack_from(">I4s", content, at)
    header = 8
    if size == 1:
        (size,) = struct.unpack_from(">Q", content, at + 8)
        header = 16
    elif size == 0:
        size = available
    # A damaged box may give a size smaller than its header. The walk over boxes must still go on.
    return kind, header, max(size, header)


def check_frame_count(count: int, source: ByteSource) -> None:
    """Raise VideoFileError if a file has more frames than memory is taken for."""
    if count > config.most_video_frames():
        raise VideoFileError(
            f"{source.name}: the video says it has {count:,} frames; want at most "
            f"{config.most_video_frames():,}. Record shorter files, or set the environment "
            "variable ROBOSTREAM_MOST_VIDEO_FRAMES to a larger number."
        )


def _children(content: memoryview, at: int = 0) -> Iterator[tuple[bytes, memoryview]]:
    for _ in range(_MOST_PARTS):
        if at + 8 > len(content):
            return
        kind, header, size = _box_header(content, at, len(content) - at)
        if at + size > len(content):
            raise ValueError(f"box {kind!r} is longer than the box around it")
        yield kind, content[at + header : at + size]
        at += size
    raise ValueError(f"more than {_MOST_PARTS} boxes in a box")


def _child(content: memoryview, *path: bytes) -> memoryview:
    for wanted in path:
        content = next((inner for kind, inner in _children(content) if kind == wanted), content[:0])
        if not len(content):
            raise KeyError(f"no {wanted.decode()} box")
    return content


def _parse_moov(moov: memoryview, source: ByteSource) -> VideoTrack | None:
    tracks = [inner for kind, inner in _children(moov) if kind == b"trak"]
    videos = [t for t in tracks if bytes(_child(t, b"mdia", b"hdlr")[8:12]) == b"vide"]
    if not videos:
        raise VideoFileError(
            f"{source.name}: want a video track, found {len(tracks)} tracks, none of video."
        )
    track = videos[0]
    table = dict(_children(_child(track, b"mdia", b"minf", b"stbl")))
    is_fragmented = any(kind == b"mvex" for kind, _ in _children(moov))
    if b"stsz" not in table:
        return None
    check_frame_count(struct.unpack_from(">I", table[b"stsz"], 8)[0], source)
    if is_fragmented:
        return None
    sizes = _sizes(table, source.size())
    byte_offsets, config_of = _places(table, sizes, source)
    configs = list(_configs(table[b"stsd"]))
    if np.any((config_of < 0) | (config_of >= len(configs))):
        raise ValueError("a sample refers to a sample entry that is not there")
    times, is_key = _presentation_times(table, len(sizes)), _key_flags(table, len(sizes))
    ticks_per_s = _timescale(_child(track, b"mdia", b"mdhd"))
    shift = _edit_shift(track, times, ticks_per_s, _timescale(_child(moov, b"mvhd")))
    known = tuple(config for config in configs if config is not None)
    if shift is None or len(known) < len(configs):
        return None
    return VideoTrack(
        time_base=Fraction(1, ticks_per_s),
        byte_offsets=byte_offsets,
        sizes=sizes,
        times=times + shift,
        is_key=is_key,
        is_shown=np.ones(len(sizes), bool),
        config_of=config_of,
        configs=known,
    )


def _rows(box: memoryview, dtype: str, columns: int) -> npt.NDArray[Any]:
    """Return the rows of a table that follow their number."""
    (count,) = struct.unpack_from(">I", box, 4)
    if 8 + count * columns * np.dtype(dtype).itemsize > len(box):
        raise ValueError(f"a table of {count} entries does not fit its box")
    return np.frombuffer(box, dtype, count * columns, 8).astype(np.int64).reshape(count, columns)


def _sizes(table: dict[bytes, memoryview], file_bytes: int) -> Int64s:
    uniform, count = struct.unpack_from(">II", table[b"stsz"], 4)
    if not uniform:
        return _rows(table[b"stsz"][4:], ">u4", 1)[:, 0]
    if uniform * count > file_bytes:
        raise ValueError(f"{count} frames of {uniform} bytes do not fit a file of {file_bytes}")
    return np.full(count, uniform, np.int64)


def _places(
    table: dict[bytes, memoryview], sizes: Int64s, source: ByteSource
) -> tuple[Int64s, Int64s]:
    """Return where each sample begins in the file, and its sample entry."""
    is_long = b"co64" in table
    chunks = _rows(table[b"co64" if is_long else b"stco"], ">u8" if is_long else ">u4", 1)[:, 0]
    rows = _rows(table[b"stsc"], ">u4", 3)
    spans = np.diff(np.append(rows[:, 0] - 1, len(chunks)))
    if np.any(spans < 0) or int(spans.sum()) != len(chunks):
        raise ValueError("the chunk table does not cover the chunks")
    per_chunk = np.repeat(rows[:, 1], spans)
    if int(per_chunk.sum()) != len(sizes):
        raise ValueError(
            f"{int(per_chunk.sum())} samples in chunks, {len(sizes)} in the size table"
        )
    before = np.cumsum(sizes) - sizes
    first_in_chunk = np.cumsum(per_chunk) - per_chunk
    # An empty last chunk begins after the last sample.
    at_chunk = np.append(before, 0)[first_in_chunk]
    byte_offsets = before + np.repeat(chunks - at_chunk, per_chunk)
    end = int((byte_offsets + sizes).max(initial=0))
    if end > source.size():
        raise VideoFileError(
            f"{source.name}: the index lists frames up to byte {end}, the file ends at byte "
            f"{source.size()}. It is truncated; download or copy it again."
        )
    if int(byte_offsets.min(initial=0)) < 0 or int(sizes.sum()) > source.size():
        raise ValueError("samples overlap, or lie outside of the file")
    return byte_offsets, np.repeat(np.repeat(rows[:, 2] - 1, spans), per_chunk)


def _presentation_times(table: dict[bytes, memoryview], count: int) -> Int64s:
    durations = _run_lengths(table[b"stts"], ">u4", count)
    times = np.cumsum(durations) - durations
    if b"ctts" in table:
        times = times + _run_lengths(table[b"ctts"], ">i4", count)
    return times


def _run_lengths(box: memoryview, dtype: str, count: int) -> Int64s:
    repeats, values = _rows(box, ">u4", 2)[:, 0], _rows(box, dtype, 2)[:, 1]
    if int(repeats.sum()) != count:
        raise ValueError(f"a time table covers {int(repeats.sum())} of {count} samples")
    return np.repeat(values, repeats)


def _key_flags(table: dict[bytes, memoryview], count: int) -> npt.NDArray[np.bool_]:
    if b"stss" not in table:
        return np.ones(count, bool)
    numbers = _rows(table[b"stss"], ">u4", 1)
    if np.any((numbers < 1) | (numbers > count)):
        raise ValueError("a key frame is listed that is no sample")
    flags = np.zeros(count, bool)
    flags[numbers - 1] = True
    return flags


def _configs(stsd: memoryview) -> Iterator[CodecConfig | None]:
    """Yield the decoder set-up of each sample entry; None for an unknown codec."""
    for kind, inner in _children(stsd, 8):
        width, height = struct.unpack_from(">HH", inner, 24)
        boxes = dict(_children(inner, _ENTRY_HEADER_BYTES - 8))
        extradata = next((bytes(boxes[name]) for name in _CODEC_BOXES if name in boxes), b"")
        decoder = _DECODERS.get(kind)
        yield CodecConfig(decoder, extradata, width, height) if decoder else None


def _edit_shift(
    track: memoryview, times: Int64s, ticks_per_s: int, movie_ticks_per_s: int
) -> int | None:
    """Return the ticks an edit list adds to all times; None if it does more than shift."""
    try:
        box = _child(track, b"edts", b"elst")
    except KeyError:
        return 0
    form = ">Qqhh" if box[0] == 1 else ">Iihh"
    (count,) = struct.unpack_from(">I", box, 4)
    if count > _MOST_PARTS:
        raise ValueError(f"an edit list of {count} entries")
    # Each edit: duration in movie ticks, media time in track ticks, rate.
    row_bytes = struct.calcsize(form)
    edits = [struct.unpack_from(form, box, 8 + row * row_bytes) for row in range(count)]
    if not edits or not len(times):
        return 0
    *empty, (duration, media_time, *rate) = edits
    if any(begin != -1 for _, begin, *_ in empty) or rate != [1, 0]:
        return None
    stop = media_time + duration * ticks_per_s // movie_ticks_per_s
    if int(times.min()) != media_time or int(times.max()) >= stop:
        return None
    wait = sum(duration for duration, *_ in empty)
    return round(Fraction(wait * ticks_per_s, movie_ticks_per_s)) - int(media_time)


def _timescale(box: memoryview) -> int:
    (scale,) = struct.unpack_from(">I", box, 20 if box[0] == 1 else 12)
    if not scale:
        raise ValueError("the clock has 0 ticks per second")
    return int(scale)
