# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import (
    Schedule,
    ScheduledStep,
    extra_frame,
    first_place,
    head_of_lane,
    schedule_steps,
    walk,
)
from robostream.plan import schedule as agenda
from tests.parameters import examples
from tests.plan.schedules import lanes_of, tours

Sample = tuple[int, int]


def samples_of(tour: Schedule, share: ScheduledStep, lanes: list[int]) -> dict[int, Sample]:
    """Return the (episode, frame) of each sample of lanes, by its place in the batch."""
    found: dict[int, Sample] = {}
    for place, at, frame in zip(share.places, share.lanes, share.frames, strict=True):
        lane, begin = tour.plan.lane(lanes[at])
        episodes, frames = tour.plan.line.locate(begin + frame % lane.length)
        assert place not in found
        found[place] = int(episodes), int(frames)
    return found


def extras_of(tour: Schedule, share: ScheduledStep) -> dict[int, Sample]:
    """Return the (episode, frame) of each sample of no lane, by its place in the batch."""
    return {place: extra_frame(tour, position) for place, position in share.extras}


@given(tour=tours(), num_workers=st.integers(1, 4), chunk=st.sampled_from([1, 20, 16_384]))
@examples(150)
def test_together_workers_build_the_batches_of_the_plan(
    tour: Schedule, num_workers: int, chunk: int
) -> None:
    """Lanes shared out in any way, stand-ins and the tail included: each place once, as planned."""
    lanes = lanes_of(tour)
    parts = [lanes[worker::num_workers] for worker in range(num_workers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agenda, "chunk_positions", lambda plan: chunk)
        agendas = [list(schedule_steps(tour, part)) for part in parts]
    batches = list(walk(tour.plan, tour.cut, tour.start, range(tour.num_steps)))

    assert all(len(shares) == len(batches) == tour.num_steps for shares in agendas)
    for step, batch in enumerate(batches):
        shares = [shares[step] for shares in agendas]
        built = extras_of(tour, shares[0])
        for share, part in zip(shares, parts, strict=True):
            samples = samples_of(tour, share, part)
            assert built.keys().isdisjoint(samples)
            built |= samples
        wanted = list(zip(batch.episodes.tolist(), batch.frames.tolist(), strict=True))

        assert [built.get(place) for place in range(len(wanted))] == wanted
        assert all(
            (s.step, s.size, s.extras) == (step, len(wanted), shares[0].extras) for s in shares
        )


@given(tour=tours())
def test_extras_are_the_tail_and_what_is_quarantined(tour: Schedule) -> None:
    """Samples that complete the tail or stand in for others are extras; all others have a lane."""
    unfiltered = tour.plan.replace(quarantined=())
    for share, batch in zip(
        schedule_steps(tour, lanes_of(tour)),
        walk(unfiltered, tour.cut, tour.start, range(tour.num_steps)),
        strict=True,
    ):
        expected = {
            (place, position)
            for place, (position, episode) in enumerate(
                zip(batch.positions, batch.episodes.tolist(), strict=True)
            )
            if position >= tour.plan.num_frames or episode in tour.plan.quarantined
        }

        assert set(share.extras) == expected
        assert len(share.extras) == len(expected)


@given(tour=tours(quarantine=False))
def test_heads_say_how_far_a_lane_has_got(tour: Schedule) -> None:
    """A head is one past the furthest frame so far, those before the tour's start included."""
    lanes = lanes_of(tour)
    heads = [head_of_lane(tour.plan.lane(n)[0], first_place(tour, n)) for n in lanes]
    for share in schedule_steps(tour, lanes):
        for at, frame, head in zip(share.lanes, share.frames, share.heads, strict=True):
            heads[at] = max(heads[at], frame + 1)

            assert head == heads[at]


@given(tour=tours())
def test_a_tour_ends_where_its_last_step_does(tour: Schedule) -> None:
    """`stop` is the position after the last one delivered, the tail's completion left out."""
    delivered = [p for step in range(tour.num_steps) for p in tour.positions(step)]
    inside = [position for position in delivered if position < tour.plan.num_frames]

    assert all(tour.start <= position < tour.stop for position in inside)
    assert len(delivered) == len(set(delivered))
    if tour.cut.drop_last:
        assert inside == delivered
