# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given

from robostream.plan import NextUse, Schedule
from tests.batches.test_prefetch import frames_of, lane_of
from tests.parameters import examples
from tests.plan.schedules import lanes_of, tours


def times(tour: Schedule, epoch: int) -> dict[tuple[int, int], int]:
    """When each frame of an epoch is delivered, counted through all epochs."""
    plan = tour.plan.replace(epoch=epoch, quarantined=())
    episodes, frames = plan.slice(0, plan.num_frames)
    pairs = zip(episodes.tolist(), frames.tolist(), strict=True)
    return {pair: epoch * plan.num_frames + position for position, pair in enumerate(pairs)}


@given(tour=tours())
@examples(40)
def test_uses_are_where_the_order_has_them(tour: Schedule) -> None:
    """Now is at most a step before the first frame; later is the first frame of the next epoch."""
    use, size = NextUse(tour), tour.cut.step_size
    this, following = times(tour, tour.plan.epoch), times(tour, tour.plan.epoch + 1)
    begun = tour.plan.epoch * tour.plan.num_frames + tour.start
    for number in lanes_of(tour):
        for coming in lane_of(tour, number).coming():
            own = [this[frame] for frame in frames_of(coming) if this[frame] >= begun]

            assert any(0 <= time - use.now(coming) < size for time in own)
            assert use.later(coming) == min(following[frame] for frame in frames_of(coming))
