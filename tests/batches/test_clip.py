# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.batches.clip import NEVER, Clip, Clock, is_long
from tests.batches.clips import clip_of, no_file


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

    def reel(self, clock: Clock) -> Clip:
        """Return its reel."""
        return Clip(
            clock,
            0,
            0,
            no_file(max(self.numbers) + 1),
            np.array(self.numbers),
            samples=np.array(self.samples),
            steps=np.array(self.steps),
            offsets=np.array(self.offsets),
        )


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
def test_a_reel_holds_the_pictures_that_are_needed(booking: Booking) -> None:
    """From the first to the last one needed, each counted as often as it is delivered."""
    reel = booking.reel(Clock())
    uses = Counter(frame for frame, _ in booking.uses())

    assert reel.first == min(uses)
    assert reel.first + len(reel) - 1 == max(uses)
    assert reel.left == [uses[reel.first + picture] for picture in range(len(reel))]
    assert reel.waiting == sum(reel.left)
    assert reel.slots == [-1] * len(reel)
    assert reel.numbers.tolist() == booking.numbers[min(uses) : max(uses) + 1]


@given(booking=bookings())
def test_pictures_are_found_by_their_number_in_the_file(booking: Booking) -> None:
    """Gaps between numbers, frames before and behind, and -1 are no pictures."""
    reel = booking.reel(Clock())
    numbers = reel.numbers.tolist()
    expected = {number: picture for picture, number in enumerate(numbers)}

    assert reel.numbers_of(list(range(len(reel)))) == numbers
    for number in range(-1, numbers[-1] + 3):
        assert reel.picture_of(number) == expected.get(number, -1)
        assert reel.picture_from(number) == sum(other < number for other in numbers)


@given(booking=bookings(), now=st.integers(0, 45))
def test_due_is_the_distance_to_the_next_delivery(booking: Booking, now: int) -> None:
    """The step being built counts; steps that are over do not; NEVER if there is none ahead."""
    clock = Clock()
    reel = booking.reel(clock)
    reel.due(np.array([0]))
    clock.step = now
    ahead: dict[int, int] = {}
    for frame, step in booking.uses():
        if step >= now:
            picture = frame - reel.first
            ahead[picture] = min(ahead.get(picture, NEVER), step - now)
    pictures = np.arange(len(reel))

    assert reel.due(pictures).tolist() == [ahead.get(p, NEVER) for p in pictures.tolist()]
    assert [reel.due_of(p) for p in pictures.tolist()] == reel.due(pictures).tolist()


@given(booking=bookings(), kept=st.sets(st.integers(0, 29)), data=st.data())
def test_missing_is_what_is_wanted_and_not_kept(
    booking: Booking, kept: set[int], data: st.DataObject
) -> None:
    """Pictures that are kept, or used up, or needed by nobody, are not missing."""
    reel = booking.reel(Clock())
    for picture in kept & set(range(len(reel))):
        reel.slots[picture] = picture
    first = data.draw(st.integers(0, len(reel)))
    stop = data.draw(st.integers(0, len(reel) + 9))
    expected = [p for p in range(len(reel)) if reel.left[p] and p not in kept and first <= p < stop]

    assert reel.missing(first, stop) == expected


@pytest.mark.parametrize(("gop", "expected"), [(2, False), (16, False), (17, True), (250, True)])
def test_gops_of_more_than_16_frames_are_long(gop: int, expected: bool) -> None:
    """GOPs count as long by their mean length in the file."""
    assert is_long(clip_of([0], file=no_file(17 * 250 * 16, gop=gop))) is expected
