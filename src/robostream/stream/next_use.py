# SPDX-License-Identifier: Apache-2.0
"""When parts of episodes are read: in this epoch, and then in the one after it. Pure.

Times are positions counted through all epochs. So all processes of a run agree on them, whatever
their ranks and batches, and the cache can keep what the run needs soonest.
"""

from __future__ import annotations

from functools import cached_property

from robostream.plan import EpochPlan
from robostream.stream.agenda import Tour
from robostream.stream.prefetch import Coming


class NextUse:
    """Times of use for the parts that one tour comes to."""

    def __init__(self, tour: Tour) -> None:
        self._tour = tour

    def now(self, coming: Coming) -> float:
        """Return when a part is first read in this tour."""
        tour = self._tour
        return self._time(tour.plan, tour.start + coming.step * tour.cut.step_size)

    def later(self, coming: Coming) -> float:
        """Return when a part is first read in the next epoch."""
        positions = self._following.positions(coming.episode)[coming.first : coming.stop]
        return self._time(self._following, int(positions.min()))

    @cached_property
    def _following(self) -> EpochPlan:
        return self._tour.plan.replace(epoch=self._tour.plan.epoch + 1)

    @staticmethod
    def _time(plan: EpochPlan, position: int) -> float:
        return float(plan.epoch * plan.num_frames + position)
