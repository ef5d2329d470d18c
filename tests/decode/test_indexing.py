# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import os
import struct
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from robostream import config
from robostream.decode import FrameIndex, build_index
from robostream.decode.mp4 import read_video_track
from robostream.errors import VideoFileError
from robostream.storage import LocalSource
from tests.decode import boxes
from tests.decode.conftest import SampleVideo
from tests.decode.videos import KINDS, encode

VideoMaker = Callable[[str], SampleVideo]
# What FFmpeg has to read from end to end, because one plain table does not tell all.
READ_BY_FFMPEG = {"fragmented", "trimmed_start", "trimmed_end", "two_edits"}


class CountingSource:
    """A file that counts the bytes read from it."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.bytes_read = 0
        self._inner = LocalSource(path)

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._inner.size()

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop)."""
        self.bytes_read += stop - start
        return self._inner.read(start, stop)


def demuxed(path: Path) -> list[tuple[int, int, int, bool, bool]]:
    """Return (position, size, pts, is key, is shown) of all packets as FFmpeg demuxes them."""
    with av.open(str(path)) as container:
        return [
            (p.pos, p.size, p.pts, p.is_keyframe, not p.is_discard)
            for p in container.demux(video=0)
            if p.size
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_index_is_what_ffmpeg_demuxes(clip: VideoMaker, kind: str) -> None:
    """Positions, sizes and times equal FFmpeg's, and times are those of the decoded frames."""
    video = clip(kind)
    packets = demuxed(video.path)
    index = build_index(LocalSource(video.path))

    assert index.byte_offsets.tolist() == [p[0] for p in packets]
    assert index.sizes.tolist() == [p[1] for p in packets]
    assert index.pts.tolist() == sorted(p[2] for p in packets if p[4])
    np.testing.assert_allclose(index.times_s(), video.times_s, rtol=0, atol=1e-9)
    order = index.packets_of(np.arange(index.num_frames)).tolist()
    assert [packets[k][2] for k in order] == index.pts.tolist()
    assert all(packets[k][3] for k in index.starts.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_may_begin_at_each_start(clip: VideoMaker, kind: str) -> None:
    """All packets of frames from a start's frame on come at or after it, and starts ascend."""
    index = build_index(LocalSource(clip(kind).path))
    packets = index.packets_of(np.arange(index.num_frames))

    assert index.starts[0] == 0
    assert np.all(np.diff(index.starts) > 0)
    assert np.all(np.diff(index.start_frames) > 0)
    for start, frame in zip(index.starts, index.start_frames, strict=True):
        assert packets[frame:].min() >= start


@pytest.mark.parametrize("kind", sorted(set(KINDS) - READ_BY_FFMPEG))
def test_pictures_are_not_read_to_make_an_index(clip: VideoMaker, kind: str) -> None:
    """Wherever the moov box is, only the ends of the file are read."""
    video = clip(kind)
    source = CountingSource(video.path)
    build_index(source)

    assert source.bytes_read <= 70_000


def test_an_open_gop_is_seen(clip: VideoMaker) -> None:
    """Pictures shown before the key picture that precedes them belong to the GOP before."""
    index = build_index(LocalSource(clip("hevc_open_gop").path))
    assert index.frames is not None
    second = int(index.starts[1])
    leading = [f for f in index.frames[second + 1 :].tolist() if f < index.start_frames[1]]

    assert leading
    assert index.gops_of(np.array(leading)).tolist() == [0] * len(leading)


def test_several_sample_entries_are_told_apart(clip: VideoMaker) -> None:
    """Each start knows which decoder set-up holds from it on."""
    index = build_index(LocalSource(clip("two_sample_entries").path))

    assert len(index.configs) == 2
    assert index.start_configs.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_start_offset_shifts_the_times(clip: VideoMaker) -> None:
    """A video whose first frame is shown late starts late in the index too."""
    index = build_index(LocalSource(clip("late_start").path))

    assert index.times_s()[0] == pytest.approx(100 / 600, abs=1e-3)
    assert index.time_base.denominator % 600 == 0
    assert isinstance(index.time_base, Fraction)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "no MP4"),
        (b"", "found none in 0 bytes"),
        (bytes(100), "found none in 100 bytes"),
    ],
    ids=["pointer", "web page", "empty", "zeros"],
)
def test_what_is_no_video_is_explained(tmp_path: Path, content: bytes, message: str) -> None:
    """A placeholder, a web page, an empty file: each is a VideoFileError that says so."""
    path = tmp_path / "file.mp4"
    path.write_bytes(content)

    with pytest.raises(VideoFileError, match=message):
        build_index(LocalSource(path))


def test_a_truncated_file_is_explained(clip: VideoMaker, tmp_path: Path) -> None:
    """Cut anywhere, a file is never taken for a whole one."""
    for kind in ("moov_first", "h264_bframes"):
        content = clip(kind).path.read_bytes()
        for size in np.linspace(0, len(content) - 1, 25).astype(int).tolist():
            path = tmp_path / "cut.mp4"
            path.write_bytes(content[:size])
            with pytest.raises(VideoFileError, match=r"cut\.mp4"):
                build_index(LocalSource(path))


def test_a_sound_file_is_no_video(tmp_path: Path) -> None:
    """A file without a video track is refused."""
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.rate = 48000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))

    with pytest.raises(VideoFileError, match="none of video"):
        build_index(LocalSource(path))


@pytest.mark.parametrize("kind", [b"stts", b"ctts", b"stsc", b"stsz", b"stco", b"stss"])
def test_a_damaged_table_is_an_error(clip: VideoMaker, tmp_path: Path, kind: bytes) -> None:
    """A table cut short, or with counts beyond its size, is a VideoFileError."""
    source = clip("h264_bframes").path
    content = source.read_bytes()
    table = boxes.payload(content[content.rindex(b"moov") - 4 :], kind)
    huge = table[:4] + struct.pack(">I", 0x7FFFFFFF) + table[8:]
    for number, damaged in enumerate((table[:6], huge[: len(table)])):
        path = boxes.rewrite(source, tmp_path / f"{number}.mp4", {kind: damaged})
        with pytest.raises(VideoFileError, match=r"\.mp4"):
            build_index(LocalSource(path))


def test_a_mixed_up_table_is_read_as_ffmpeg_reads_it(tmp_path: Path) -> None:
    """Without an stss box every packet is a key; with co64 offsets are 64-bit."""
    plain = encode(tmp_path / "plain.mp4", "libx264", {"g": "1", "bf": "0"}, count=6)
    content = plain.read_bytes()
    moov = content[content.rindex(b"moov") - 4 :]
    offsets = struct.unpack(">I", boxes.payload(moov, b"stco")[8:12])
    changed = boxes.replace(moov, {b"stss": None, b"stco": None})
    stbl = boxes.payload(changed, b"stbl")
    co64 = boxes.box(b"co64", struct.pack(">IIQ", 0, 1, *offsets))
    path = boxes.rewrite(plain, tmp_path / "co64.mp4", {b"stbl": stbl + co64})
    track = read_video_track(LocalSource(path))

    assert track is not None
    assert track.byte_offsets.tolist() == [p[0] for p in demuxed(path)]
    assert track.is_key.all()


def test_an_index_is_small(tmp_path: Path) -> None:
    """An index takes at most 24 bytes of memory a frame."""
    path = encode(tmp_path / "long.mp4", "libx264", {"g": "2", "preset": "ultrafast"}, count=600)
    index: FrameIndex = build_index(LocalSource(path))

    fields = [getattr(index, field.name) for field in dataclasses.fields(index)]
    nbytes = sum(field.nbytes for field in fields if isinstance(field, np.ndarray))

    assert nbytes / index.num_frames <= 24


def test_more_sample_entries_than_a_byte_can_count(clip: VideoMaker) -> None:
    """Each packet keeps the set-up its table gives it, however many there are."""
    index = build_index(LocalSource(clip("many_sample_entries").path))

    assert index.start_configs.tolist() == [0] * 4 + [256] * 4


def test_an_index_that_is_too_large_is_refused(
    clip: VideoMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before memory is taken for it: the file may come from a stranger."""
    monkeypatch.setattr(config, "MOST_VIDEO_INDEX_BYTES", 100)

    with pytest.raises(VideoFileError, match=r"the index of the video has .* want at most 100"):
        read_video_track(LocalSource(clip("h264_g2").path))


def claiming(
    clip: VideoMaker, tmp_path: Path, count: int, edits: bytes | None = None, **claims: bytes
) -> LocalSource:
    """Return a file that claims so many pictures of one byte, and is so long, most of it a hole.

    Args:
        clip: Makes the file that this is a copy of.
        tmp_path: Where the copy lies.
        count: How many pictures.
        edits: The payload of the edit list, if there is to be one.
        claims: The payloads of boxes of the sample table, in place of the right ones.
    """
    original = clip("h264_g2").path
    right = {
        "stsd": boxes.payload(original.read_bytes(), b"stsd"),
        "stsz": struct.pack(">III", 0, 1, count),
        "stts": struct.pack(">IIII", 0, 1, count, 1000),
        "stsc": struct.pack(">IIIII", 0, 1, 1, count, 1),
        "stco": struct.pack(">III", 0, 1, 48),
    }
    table = b"".join(boxes.box(name.encode(), text) for name, text in (right | claims).items())
    changes = {b"stbl": table, b"edts": edits}
    path = boxes.rewrite(original, tmp_path / "claims.mp4", changes)
    os.truncate(path, max(count + 48, path.stat().st_size))
    return LocalSource(path)


@pytest.mark.parametrize("count", [50_000_000, 200_000_000])
def test_pictures_that_a_few_bytes_claim_take_no_memory(
    count: int, clip: VideoMaker, tmp_path: Path
) -> None:
    """A table of equal sizes has no entry per picture; the error names the variable to raise."""
    source = claiming(clip, tmp_path, count)

    with pytest.raises(VideoFileError, match=rf"{count:,} frames.*ROBOSTREAM_MOST_VIDEO_FRAMES"):
        build_index(source)


def test_the_number_of_frames_that_are_indexed_is_a_setting(
    clip: VideoMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a plain table, and where FFmpeg reads the file."""
    monkeypatch.setenv("ROBOSTREAM_MOST_VIDEO_FRAMES", "3000")
    assert build_index(claiming(clip, tmp_path, 3000)).num_frames == 3000
    monkeypatch.setenv("ROBOSTREAM_MOST_VIDEO_FRAMES", "5")
    for kind in ("h264_g2", "fragmented"):
        with pytest.raises(VideoFileError, match="want at most 5"):
            build_index(LocalSource(clip(kind).path))


def test_a_file_of_countless_boxes_is_not_read_to_its_end(tmp_path: Path) -> None:
    """The search for the index ends after more boxes than any video has."""
    path = tmp_path / "boxes.mp4"
    path.write_bytes(struct.pack(">I4s", 8, b"free") * 1_000_000)
    source = CountingSource(path)

    with pytest.raises(VideoFileError, match="want an MP4 with an index"):
        read_video_track(source)
    assert source.bytes_read < path.stat().st_size / 2


HUGE = 2**32 - 1
CLAIMS = {
    "stts": struct.pack(">IIIIII", 0, 2, HUGE, 1, HUGE, 1),
    "ctts": struct.pack(">IIIIII", 0, 2, HUGE, 1, HUGE, 1),
    "stsc": struct.pack(">IIIII", 0, 1, 1, HUGE, 1),
    "stss": struct.pack(">II", 0, HUGE),
    "stco": struct.pack(">III", 0, HUGE, 48),
    "co64": struct.pack(">IIQ", 0, 1, 2**64 - 2**20),
    "edits": boxes.box(b"elst", struct.pack(">II", 0, HUGE) + bytes(12 * 20_000)),
    "stsd": struct.pack(">II", 0, 20_000) + boxes.box(b"avc1", bytes(78)) * 20_000,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_count_is_checked_before_memory_is_taken(
    name: str, clip: VideoMaker, tmp_path: Path
) -> None:
    """Whatever a box claims to have, beyond what fits in it or in the file."""
    source = claiming(clip, tmp_path, 1000, **{name: CLAIMS[name]})
    tracemalloc.start()
    try:
        with pytest.raises(VideoFileError):
            build_index(source)
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024**2
    finally:
        tracemalloc.stop()
