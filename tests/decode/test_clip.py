# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import plan_runs
from robostream.decode.clip import NEVER, Clip, ClipUses, Clock, Deliveries, needed_frames
from tests.decode.clips import no_file


@dataclass(frozen=True)
class Booking:
    """An episode's frames in its file, and which samples of it are delivered when."""

    numbers: list[int]
    samples: list[int]
    steps: list[int]
    offsets: list[int]

    def uses(self) -> list[tuple[int, int]]:
        """Return (frame of the episode, step) of every picture of every sample."""
        last = len(self.numbers) - 1
        return [
            (min(max(sample + offset, 0), last), step)
            for sample, step in zip(self.samples, self.steps, strict=True)
            for offset in self.offsets
        ]

    def schedule(self, clock: Clock) -> ClipUses:
        """Return the uses of its clip."""
        samples, offsets = np.array(self.samples), np.array(self.offsets)
        first, stop = needed_frames(samples, offsets, len(self.numbers))
        clip = Clip(no_file(max(self.numbers) + 1), np.array(self.numbers)[first:stop], first=first)
        return ClipUses(clip, clock, Deliveries(samples, np.array(self.steps)), offsets)


@st.composite
def bookings(draw: st.DrawFn) -> Booking:
    """Return an episode of up to 30 frames, with or without gaps in its file."""
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=1, max_size=30))
    numbers = np.cumsum([draw(st.integers(0, 50)), *gaps[1:]]).tolist()
    frames = st.integers(0, len(numbers) - 1)
    samples = sorted(draw(st.sets(frames, min_size=1)))
    steps = draw(st.lists(st.integers(0, 40), min_size=len(samples), max_size=len(samples)))
    offsets = sorted(draw(st.sets(st.integers(-9, 9), min_size=1, max_size=4)))
    return Booking(numbers, samples, steps, offsets)


@given(booking=bookings())
def test_a_clip_holds_the_frames_that_are_needed(booking: Booking) -> None:
    """From the first to the last one needed, each counted as often as it is delivered."""
    uses = booking.schedule(Clock())
    clip = uses.clip
    expected = Counter(frame for frame, _ in booking.uses())

    assert clip.first == min(expected)
    assert clip.first + len(clip) - 1 == max(expected)
    assert uses.left == [expected[clip.first + frame] for frame in range(len(clip))]
    assert uses.num_left == sum(uses.left)
    assert uses.unfetched == [(0, len(clip))]
    assert clip.numbers.tolist() == booking.numbers[min(expected) : max(expected) + 1]


@given(booking=bookings())
def test_frames_are_found_by_their_number_in_the_file(booking: Booking) -> None:
    """Gaps between numbers, frames before and behind, and -1 are not in the clip."""
    clip = booking.schedule(Clock()).clip
    numbers = clip.numbers.tolist()
    expected = {number: frame for frame, number in enumerate(numbers)}

    assert clip.plan_runs(range(len(clip))) == plan_runs(clip.file.index, numbers)
    for number in range(-1, numbers[-1] + 3):
        assert clip.frame_of(number) == expected.get(number, -1)


@given(booking=bookings(), gop=st.integers(1, 9))
def test_a_gop_is_the_frames_between_two_starts(booking: Booking, gop: int) -> None:
    """Of the clip's frames, those whose numbers lie in the same GOP of the file."""
    clip = Clip(no_file(max(booking.numbers) + 1, gop=gop), np.array(booking.numbers))
    gops = [number // gop for number in booking.numbers]

    for frame, its_gop in enumerate(gops):
        first, stop = clip.gop_of(frame)
        assert [f for f, g in enumerate(gops) if g == its_gop] == list(range(first, stop))
        assert clip.start_from(first or stop) == (first or stop)


@given(booking=bookings(), now=st.integers(0, 45))
def test_due_is_the_distance_to_the_next_delivery(booking: Booking, now: int) -> None:
    """The step being built counts; steps that are over do not; NEVER if there is none ahead."""
    clock = Clock()
    uses = booking.schedule(clock)
    uses.due(np.array([0]))
    clock.move_to(now)
    ahead: dict[int, int] = {}
    for frame, step in booking.uses():
        if step >= now:
            own = frame - uses.clip.first
            ahead[own] = min(ahead.get(own, NEVER), step - now)
    frames = np.arange(len(uses.clip))

    assert uses.due(frames).tolist() == [ahead.get(f, NEVER) for f in frames.tolist()]
    assert [uses.due_of(f) for f in frames.tolist()] == uses.due(frames).tolist()


@given(booking=bookings(), cached=st.sets(st.integers(0, 29)), data=st.data())
def test_missing_is_what_is_wanted_and_not_cached(
    booking: Booking, cached: set[int], data: st.DataObject
) -> None:
    """Frames that are cached, or delivered, or needed by nobody, are not missing."""
    uses = booking.schedule(Clock())
    count = len(uses.clip)
    for frame in cached.intersection(range(count)):
        uses.slots[frame] = frame
    first = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(0, count + 9))
    expected = [f for f in range(count) if uses.left[f] and f not in cached and first <= f < stop]

    assert uses.missing(first, stop) == expected


@given(booking=bookings())
def test_every_wanted_frame_is_delivered_and_then_done(booking: Booking) -> None:
    """Samples want the frames of their windows; the last delivery of each frame says so."""
    uses = booking.schedule(Clock())
    done: list[int] = []
    for sample in booking.samples:
        frames = uses.want(sample)
        last = len(booking.numbers) - 1
        assert [uses.clip.first + frame for frame in frames] == [
            min(max(sample + offset, 0), last) for offset in booking.offsets
        ]
        assert all(uses.is_due_later(f) == (uses.left[f] > frames.count(f)) for f in set(frames))
        done += uses.deliver(frames)
        uses.now.clear()

    assert uses.num_left == 0
    assert sorted(done) == sorted({frame - uses.clip.first for frame, _ in booking.uses()})


@pytest.mark.parametrize("split", [-3, 0, 4, 99])
def test_bytes_are_fetched_in_the_parts_that_frames_lie_in(split: int) -> None:
    """A clip is fetched in at most two ranges, cut at a frame of the episode; each once."""
    clip = Clip(no_file(20), np.arange(20)[5:15], first=5)
    samples = np.arange(5, 15)
    delivered = Deliveries(samples, samples, split=split + 5)
    uses = ClipUses(clip, Clock(), delivered, np.zeros(1, np.int64))
    cut = min(max(split, 0), 10)

    assert uses.unfetched == [part for part in ((0, cut), (cut, 10)) if part[0] < part[1]]
    uses.fetch([9])
    assert uses.unfetched == ([(0, cut)] if 0 < cut < 10 else [])
    uses.fetch([0])
    assert uses.unfetched == []


@pytest.mark.parametrize(("gop", "expected"), [(2, False), (16, False), (17, True), (250, True)])
def test_gops_of_more_than_16_frames_are_long(gop: int, expected: bool) -> None:
    """GOPs count as long by their mean length in the file."""
    assert no_file(17 * 250 * 16, gop=gop).index.has_long_gops is expected
