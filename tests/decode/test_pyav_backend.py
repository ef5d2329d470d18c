# SPDX-License-Identifier: Apache-2.0
"""What is odd or damaged in one file is found out, and does not reach what is decoded next."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from robostream.decode import (
    DecodedFrame,
    FileRun,
    FrameEngine,
    FrameIndex,
    PyavBackend,
    Renderer,
    VideoFile,
    build_index,
    plan_runs,
)
from robostream.errors import VideoFileError
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo, local_engine

VideoMaker = Callable[[str], SampleVideo]


@pytest.fixture(scope="module")
def video(clip: VideoMaker) -> SampleVideo:
    """AV1 with a key frame every 2."""
    return clip("av1_g2")


@pytest.fixture(scope="module")
def index(video: SampleVideo) -> FrameIndex:
    """Its index."""
    return build_index(LocalSource(video.path))


def piece(path: Path, index: FrameIndex, frame: int) -> FileRun:
    """Return the run of a frame."""
    return VideoFile(str(path), LocalSource(path), index), plan_runs(index, [frame])[0]


def decode(pieces: list[FileRun]) -> dict[tuple[int, int], npt.NDArray[np.uint8]]:
    """Return the pictures of pieces by place and number, decoded by one backend."""
    return {
        (place, number): drawn(picture)
        for place, number, picture in PyavBackend().decode(pieces)
        if picture is not None
    }


def drawn(picture: DecodedFrame) -> npt.NDArray[np.uint8]:
    """Return a decoded picture as RGB."""
    out = np.zeros(picture.layout.shape, np.uint8)
    Renderer(None).draw(picture, out, file="")
    return out


def error_of(engine: FrameEngine, file: str, frame: int, out: npt.NDArray[np.uint8]) -> str:
    """Return what the error of reading a frame says, or nothing."""
    try:
        engine.read(file, [frame], out)
    except VideoFileError as error:
        return str(error)
    return ""


def test_a_start_that_is_none_begins_earlier(video: SampleVideo, index: FrameIndex) -> None:
    """A table that calls every packet a key is found out, and the neighbours stay right."""
    every = np.arange(index.num_frames)
    wrong = replace(index, starts=every, start_frames=every, start_configs=np.zeros_like(every))
    numbers = (3, 4, 9, 10)
    got = decode([piece(video.path, wrong, number) for number in numbers])

    for place, number in enumerate(numbers):
        np.testing.assert_array_equal(got[place, number], video.pictures[number])


def test_damaged_sizes_do_not_reach_other_files(
    video: SampleVideo, index: FrameIndex, tmp_path: Path
) -> None:
    """A unit that, by a flipped bit, claims to be longer than its packet spoils no other file."""
    damaged = tmp_path / "damaged.mp4"
    refused = 0
    for packet, byte, bit in itertools.product((39, 38), (0, 1, 2), range(8)):
        content = bytearray(video.path.read_bytes())
        content[int(index.byte_offsets[packet]) + byte] ^= 1 << bit
        damaged.write_bytes(content)
        with local_engine() as engine:
            refused += bool(error := error_of(engine, str(damaged), 39, video.slots(1)))
            assert not error or str(damaged) in error
            for frame in (18, 6):
                out = video.slots(1)
                engine.read(video.file, [frame], out)
                np.testing.assert_array_equal(out[0], video.pictures[frame])

    assert refused > 12


def test_a_frame_shown_twice_is_refused(video: SampleVideo, index: FrameIndex) -> None:
    """A packet with two frames in it is not one of an MP4."""
    sizes = index.sizes.copy()
    sizes[0] += sizes[1]

    with pytest.raises(VideoFileError, match=r"frame 0 is damaged.*twice"):
        decode([piece(video.path, replace(index, sizes=sizes), 0)])


def test_a_packet_that_shows_nothing_is_noticed(
    video: SampleVideo, index: FrameIndex, tmp_path: Path
) -> None:
    """If decoders ignore the unit of a packet, its frame has no picture: that is an error."""
    content = bytearray(video.path.read_bytes())
    at = int(index.byte_offsets[1])
    content[at] = content[at] & ~0x78 | 9 << 3
    (tmp_path / "few.mp4").write_bytes(content)

    with local_engine() as engine, pytest.raises(VideoFileError, match="no image for frame 1"):
        engine.read(str(tmp_path / "few.mp4"), [1], video.slots(1))


def test_frames_of_another_file_are_not_shown_again(
    video: SampleVideo, index: FrameIndex, tmp_path: Path
) -> None:
    """A packet that asks for a frame decoded earlier is refused, whatever was decoded before."""
    content = bytearray(video.path.read_bytes())
    at = int(index.byte_offsets[4])
    header = bytes(content[at : at + 2 + content[at + 1]])
    packet = header + bytes([0x1A, 1, 0x88])
    content[at : at + len(packet)] = packet
    (tmp_path / "again.mp4").write_bytes(content)
    sizes = index.sizes.copy()
    sizes[4] = len(packet)
    again = piece(tmp_path / "again.mp4", replace(index, sizes=sizes), 4)

    for pieces in ([again], [piece(video.path, index, 0), again]):
        with pytest.raises(VideoFileError, match=r"again\.mp4"):
            decode(pieces)


@pytest.mark.parametrize("kind", ["av1_g2", "h264_bframes", "hevc_open_gop", "vp9"])
def test_runs_of_several_files_are_decoded_as_each_alone(clip: VideoMaker, kind: str) -> None:
    """One backend, whose decoders are used again, gives each run its own pictures."""
    videos = [clip("av1_g30"), clip(kind), clip("h264_g2")]
    rng = np.random.default_rng(0)
    picks = [(int(rng.integers(3)), int(rng.integers(48))) for _ in range(40)]
    indices = [build_index(LocalSource(video.path)) for video in videos]
    got = decode([piece(videos[which].path, indices[which], frame) for which, frame in picks])

    for place, (which, frame) in enumerate(picks):
        np.testing.assert_array_equal(got[place, frame], videos[which].pictures[frame])
