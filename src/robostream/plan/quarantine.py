# SPDX-License-Identifier: Apache-2.0
"""What stands in for the frames of quarantined episodes: healthy frames from near by on the line.

The line keeps its length and every healthy frame keeps its position, so ranks stay in step. Which
frame stands in at a position follows from the plan, the list of quarantined episodes and the
position alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robostream.plan.line import Line
from robostream.plan.mix import Ints, below, words


@dataclass(frozen=True, slots=True, eq=False)
class Quarantine:
    """The places of quarantined episodes on a line, and the rule that fills them.

    Attributes:
        starts: The first place of each quarantined episode, ascending.
        stops: The place after its last frame.
        healthy_before: The number of healthy places before each quarantined episode.
        num_healthy: The number of healthy places of the line.
        reach: The stand-ins of an episode come from this many healthy places around it.
        key: The stream that draws the stand-ins, by position.
    """

    starts: Ints
    stops: Ints
    healthy_before: Ints
    num_healthy: int
    reach: int
    key: int

    def fill(self, positions: Ints, places: Ints) -> Ints:
        """Return `places` with the quarantined ones replaced by their stand-ins. Pure."""
        slots = np.searchsorted(self.starts, places, side="right") - 1
        bad = (slots >= 0) & (places < self.stops[slots])
        healthy = self.healthy_before[slots[bad]] - self.reach // 2
        healthy += below(self.reach, words(self.key, positions[bad]))
        filled = places.copy()
        filled[bad] = self._healthy_places(healthy % self.num_healthy)
        return filled

    def _healthy_places(self, healthy: Ints) -> Ints:
        passed = np.searchsorted(self.healthy_before, healthy, side="right")
        removed: Ints = np.concatenate([[0], np.cumsum(self.stops - self.starts)])
        places: Ints = healthy + removed[passed]
        return places


def lay_quarantine(line: Line, episodes: Sequence[int], *, reach: int, key: int) -> Quarantine:
    """Return the rule that fills the places of `episodes`, not all there are, on `line`. Pure."""
    spans = np.array(sorted(line.span(episode) for episode in set(episodes)), dtype=np.int64)
    starts, stops = spans[:, 0], spans[:, 1]
    lengths = stops - starts
    num_healthy = line.num_frames - int(lengths.sum())
    return Quarantine(
        starts=starts,
        stops=stops,
        healthy_before=starts - np.cumsum(lengths) + lengths,
        num_healthy=num_healthy,
        reach=min(reach, num_healthy),
        key=key,
    )
