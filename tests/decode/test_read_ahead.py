# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import Clip, DecodedFrame, FrameLayout, LruFrameCache, Uses
from robostream.decode.random_access import (
    LastRead,
    LastReads,
    frames_to_decode,
    reads_in_order,
)
from robostream.storage import LruCache
from tests.decode.clips import open_file
from tests.decode.conftest import SampleVideo

VideoMaker = Callable[[str], SampleVideo]
LAYOUT = FrameLayout("yuv420p", 96, 64, 2, 1)
RGB_BYTES = 3 * 96 * 64
ALL = (0, 1000)
READS_IN_ORDER = 3


def opened(video: SampleVideo) -> Clip:
    """Return all frames of a video."""
    file = open_file(video)
    return Clip(file, range(file.index.num_frames))


def needing(clip: Clip, frames: list[int], cache: LruFrameCache) -> Uses:
    """Return a clip of which some frames are needed now."""
    return Uses(clip, dict.fromkeys(frames, 0), cache.slots(clip))


def keep(clip: Clip, frame: int, cache: LruFrameCache) -> None:
    """Cache a frame."""
    uses = needing(clip, [frame], cache)
    cache.release(uses, [frame])
    cache.add(uses, frame, DecodedFrame(LAYOUT, ()), lambda *_: None)


def new_order() -> LastReads:
    """Return that no file was read yet."""
    return LruCache(32)


def read(clip: Clip, frames: list[int], order: LastReads, cache: LruFrameCache) -> list[int]:
    """Return what is decoded for a read, and cache it."""
    missing = [frame for frame in frames if cache.slots(clip)[frame] < 0]
    if not missing:
        return []
    uses = needing(clip, missing, cache)
    chosen = frames_to_decode(uses, (0, len(clip)), order, cache.budget_bytes)
    for frame in chosen:
        keep(clip, frame, cache)
    return chosen


def test_reads_in_order_get_a_stretch_of_whole_gops(clip: VideoMaker) -> None:
    """The fourth read in order decodes about 32 frames on, to the end of a GOP."""
    file = opened(clip("h264_g2"))
    order, cache = new_order(), LruFrameCache(10**8)
    chosen = [read(file, [frame], order, cache) for frame in range(6)]

    assert chosen == [[0], [1], [2], list(range(3, 36)), [], []]


def test_a_stretch_goes_on_where_the_last_one_ended(clip: VideoMaker) -> None:
    """Once in order, every stretch is decoded at once."""
    file = opened(clip("h264_g250"))
    order, cache = new_order(), LruFrameCache(8 * 50 * RGB_BYTES)
    decodings = [chosen for frame in range(200) if (chosen := read(file, [frame], order, cache))]

    assert [len(chosen) for chosen in decodings] == [1, 1, 1, 50, 50, 50, 50]


@pytest.mark.parametrize("step", [1, 3, 8])
def test_steps_may_leave_frames_out(clip: VideoMaker, step: int) -> None:
    """Every eighth frame is in order too."""
    file = opened(clip("h264_g2"))
    order, cache = new_order(), LruFrameCache(10**8)
    chosen = [read(file, [frame], order, cache) for frame in range(0, 5 * step, step)]

    assert [len(one) for one in chosen[:3]] == [1, 1, 1]
    assert len(chosen[3]) >= 24
    assert chosen[4] == []


def test_steps_back_or_too_far_are_no_order(clip: VideoMaker) -> None:
    """Reading back, or the same frame again and again, is not reading in order."""
    file = opened(clip("h264_g250"))
    order, cache = new_order(), LruFrameCache(10**8)
    for frames in (range(100, 0, -1), range(0, 250, 9), [5] * 20):
        for frame in frames:
            frames_to_decode(needing(file, [frame], cache), ALL, order, cache.budget_bytes)

            last = order.get(file.file.name)

            assert last is not None
            assert last.reads < READS_IN_ORDER


def test_a_gop_is_completed_on_the_second_visit(clip: VideoMaker) -> None:
    """If the first frame of a GOP is kept from an earlier read, the rest is decoded at once."""
    file = opened(clip("h264_bframes"))
    order, cache = new_order(), LruFrameCache(10**8)
    first = int(file.file.index.start_frames[1])
    stop = int(file.file.index.start_frames[2])
    assert read(file, [first + 5], order, cache) == [first + 5]
    keep(file, first, cache)

    assert read(file, [first + 2], order, cache) == [
        frame for frame in range(first + 1, stop) if frame != first + 5
    ]


@given(
    room=st.integers(0, 300),
    reads=st.lists(st.lists(st.integers(0, 259), min_size=1, max_size=5), max_size=30),
    span=st.tuples(st.integers(0, 100), st.integers(150, 260)),
)
def test_more_is_decoded_only_within_bounds(
    clip: VideoMaker, room: int, reads: list[list[int]], span: tuple[int, int]
) -> None:
    """All that is wanted is decoded; what comes beside it is wanted by somebody, new, and fits."""
    file = opened(clip("h264_g250"))
    order, cache = new_order(), LruFrameCache(room * RGB_BYTES)
    for frames in reads:
        wanted = sorted({frame for frame in frames if cache.slots(file)[frame] < 0})
        if not wanted:
            continue
        kept = {frame for frame in range(260) if cache.slots(file)[frame] >= 0}
        uses = needing(file, wanted, cache)
        chosen = frames_to_decode(uses, span, order, cache.budget_bytes)
        beside = set(chosen) - set(wanted)

        assert chosen == sorted(set(chosen))
        assert set(wanted) <= set(chosen)
        assert not beside & kept
        assert len(beside) <= room
        assert all(span[0] <= frame < span[1] for frame in beside)
        for frame in chosen:
            keep(file, frame, cache)


def test_random_reads_of_a_short_file_are_seldom_taken_for_an_order() -> None:
    """Of a thousand reads at random in a file of 48 frames, few are followed by a stretch."""
    last, stretches = None, 0
    for frame in np.random.default_rng(0).integers(0, 48, 1000).tolist():
        reads = reads_in_order(last, frame)
        stretches += reads >= READS_IN_ORDER
        last = LastRead(frame, frame + 1, reads)

    assert stretches < 15
