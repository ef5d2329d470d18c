# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robostream.decode import FrameEngine, Want, build_index
from robostream.decode.backend import Piece
from robostream.decode.feeding import chain_up
from robostream.decode.pyav_backend import PyavBackend
from robostream.decode.runs import plan_runs
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
