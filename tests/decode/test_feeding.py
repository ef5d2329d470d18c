# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robostream.decode import FrameEngine, Want, build_index
from robostream.decode.backend import Piece
from robostream.decode.feeding import chain_up
from robostream.decode.pyav_backend import PyavBackend
from robostream.decode.runs import plan_runs
from robostream.errors import VideoFileError
from robostream.fetch import LocalSource
from tests.decode.conftest import Clip

ClipMaker = Callable[[str], Clip]
KINDS = ("av1_g2", "h264_g2", "av1_small", "av1_g30")


@pytest.fixture(scope="module")
def clips(clip: ClipMaker) -> list[Clip]:
    """AV1 of two set-ups, one of them also with long GOPs, and another codec."""
    return [clip(kind) for kind in KINDS]


def pieces_of(clips: list[Clip], picks: list[tuple[int, int]]) -> list[Piece]:
    """Return the runs of frames, each for itself."""
    sources = [LocalSource(clip.path) for clip in clips]
    indices = [build_index(source) for source in sources]
    return [
        Piece(sources[which], indices[which], plan_runs(indices[which], [frame])[0])
        for which, frame in picks
    ]


@given(picks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 47)), max_size=40))
def test_chains_hold_every_piece_once(clips: list[Clip], picks: list[tuple[int, int]]) -> None:
    """Only AV1 runs of one set-up share a chain, at most 8 packets of them."""
    pieces = pieces_of(clips, picks)
    chains = chain_up(pieces)

    assert sorted(place for chain in chains for place, _ in chain) == list(range(len(pieces)))
    for chain in chains:
        assert all(piece is pieces[place] for place, piece in chain)
        assert len({piece.config for _, piece in chain}) == 1
        lengths = [piece.run.stop_packet - piece.run.first_packet for _, piece in chain]
        assert len(chain) == 1 or (chain[0][1].config.decoder == "libdav1d" and sum(lengths) <= 8)


@given(picks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 47)), min_size=1, max_size=30))
@settings(max_examples=30)
def test_frames_read_together_are_those_read_alone(
    clips: list[Clip], picks: list[tuple[int, int]]
) -> None:
    """Whatever is fed in one go, each want gets its own frames, from first to last."""
    wants = [Want(clips[w].file, [frame], clips[w].slots(1)) for w, frame in picks]
    with FrameEngine(LocalSource, store_bytes=0) as engine:
        engine.read_all(wants)

    for want, (which, frame) in zip(wants, picks, strict=True):
        np.testing.assert_array_equal(want.out[0], clips[which].pictures[frame])


def test_a_start_that_is_none_begins_earlier_in_a_chain_too(clips: list[Clip]) -> None:
    """A table that calls every packet a key is found out, and the neighbours stay right."""
    video, numbers = clips[0], (3, 4, 9, 10)
    source = LocalSource(video.path)
    index = build_index(source)
    every = np.arange(index.num_frames)
    wrong = replace(index, starts=every, start_frames=every, start_configs=np.zeros_like(every))
    pieces = [Piece(source, wrong, plan_runs(wrong, [number])[0]) for number in numbers]
    got = {place: frame for place, number, frame in PyavBackend().decode(pieces) if number >= 0}

    assert len(chain_up(pieces)) == 1
    for place, number in enumerate(numbers):
        picture = got[place].to_ndarray(format="rgb24").transpose(2, 0, 1)
        np.testing.assert_array_equal(picture, video.pictures[number])


def read_beside(video: Clip, damaged: Path, frame: int) -> list[npt.NDArray[Any]] | str:
    """Return what a frame and two of a whole file beside it give, or the error."""
    wants = [
        Want(str(file), [number], video.slots(1))
        for file, number in ((video.path, 18), (damaged, frame), (video.path, 6))
    ]
    with FrameEngine(LocalSource, store_bytes=0) as engine:
        try:
            engine.read_all(wants)
        except VideoFileError as error:
            return str(error)
    return [want.out[0] for want in wants]


def test_damaged_sizes_do_not_reach_other_files(clips: list[Clip], tmp_path: Path) -> None:
    """A unit that by a flipped bit claims the next packet, of another file, is found out."""
    video = clips[0]
    index = build_index(LocalSource(video.path))
    damaged = tmp_path / "damaged.mp4"
    refused = 0
    for packet, byte, bit in itertools.product((39, 38), (0, 1, 2), range(8)):
        content = bytearray(video.path.read_bytes())
        content[int(index.positions[packet]) + byte] ^= 1 << bit
        damaged.write_bytes(content)
        got = read_beside(video, damaged, 39)
        if isinstance(got, str):
            refused += 1
            assert str(damaged) in got
        else:
            np.testing.assert_array_equal(got[0], video.pictures[18])
            np.testing.assert_array_equal(got[2], video.pictures[6])

    assert refused > 12


def test_a_frame_too_few_and_one_too_many_do_not_cancel_out(
    clips: list[Clip], tmp_path: Path
) -> None:
    """Two odd files, of which each is refused alone, are refused together."""
    source = LocalSource(clips[0].path)
    index = build_index(source)
    content = bytearray(clips[0].path.read_bytes())
    content[int(index.positions[1])] = content[int(index.positions[1])] & ~0x78 | 9 << 3
    (tmp_path / "few.mp4").write_bytes(content)
    few = Piece(LocalSource(tmp_path / "few.mp4"), index, plan_runs(index, [1])[0])
    sizes = index.sizes.copy()
    sizes[0] += sizes[1]
    longer = replace(index, sizes=sizes)
    many = Piece(source, longer, plan_runs(longer, [0])[0])

    for pieces in ([few], [many], [few, many], [many, few]):
        with pytest.raises(VideoFileError, match="did not give"):
            list(PyavBackend().decode(pieces))


def test_frames_of_another_file_are_not_shown_again(clips: list[Clip], tmp_path: Path) -> None:
    """A packet that asks for a frame decoded earlier is refused, whatever was decoded before."""
    video = clips[0]
    index = build_index(LocalSource(video.path))
    content = bytearray(video.path.read_bytes())
    at = int(index.positions[4])
    header = bytes(content[at : at + 2 + content[at + 1]])
    packet = header + bytes([0x1A, 1, 0x88])
    content[at : at + len(packet)] = packet
    (tmp_path / "again.mp4").write_bytes(content)
    sizes = index.sizes.copy()
    sizes[4] = len(packet)
    shorter = replace(index, sizes=sizes)
    whole = Piece(LocalSource(video.path), index, plan_runs(index, [0])[0])
    again = Piece(LocalSource(tmp_path / "again.mp4"), shorter, plan_runs(shorter, [4])[0])

    for pieces in ([again], [whole, again]):
        with pytest.raises(VideoFileError):
            list(PyavBackend().decode(pieces))


def test_an_odd_run_does_not_make_others_be_read_twice(clips: list[Clip], tmp_path: Path) -> None:
    """What was read for a chain serves its runs when they are decoded one by one."""
    reads: list[str] = []

    class Watched(LocalSource):
        def read(self, start: int, stop: int) -> bytes:
            reads.append(self.name)
            return super().read(start, stop)

    video, damaged = clips[0], tmp_path / "damaged.mp4"
    index = build_index(LocalSource(video.path))
    content = bytearray(video.path.read_bytes())
    content[int(index.positions[9]) + 1] ^= 0x40
    damaged.write_bytes(content)
    whole = [Piece(Watched(video.path), index, plan_runs(index, [f])[0]) for f in (2, 4)]
    odd = Piece(LocalSource(damaged), index, plan_runs(index, [9])[0])
    with pytest.raises(VideoFileError, match=r"damaged\.mp4"):
        list(PyavBackend().decode([*whole, odd]))

    assert len(reads) == 2
