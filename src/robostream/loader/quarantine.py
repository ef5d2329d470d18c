# SPDX-License-Identifier: Apache-2.0
"""Bad episodes: raise at once, or set them aside and fill their places by the plan's rule."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from robostream.errors import DatasetError, SelectionError
from robostream.plan import EpochPlan

logger = logging.getLogger(__name__)

POLICIES = ("raise", "quarantine")


class Quarantine:
    """The episodes set aside so far; thread-safe.

    The places of a bad episode are filled with frames of others by a rule of the plan: every
    healthy frame keeps its position, so ranks stay in step, and runs with the same list agree.
    """

    def __init__(self, policy: str, known: Mapping[int, str] | None = None) -> None:
        if policy not in POLICIES:
            raise SelectionError(f"on_bad_episode must be one of {POLICIES}, got {policy!r}")
        self.policy = policy
        self._reasons = dict(known or {})
        self._lock = threading.Lock()
        self._plans: dict[int, EpochPlan] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"policy": self.policy, "known": self.reasons()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def reasons(self) -> dict[int, str]:
        """Return a copy of the list: episode -> reason."""
        with self._lock:
            return dict(self._reasons)

    def merge(self, reasons: Mapping[int, str]) -> None:
        """Add what another process has set aside."""
        with self._lock:
            self._reasons = dict(reasons) | self._reasons

    def accept(self, episode: int, error: DatasetError) -> bool:
        """Set an episode aside if the policy says so; return whether to go on without it."""
        if self.policy != "quarantine":
            return False
        with self._lock:
            if episode in self._reasons:
                return True
            self._reasons[episode] = str(error)
        logger.warning("episode %d is set aside: %s", episode, error)
        return True

    def resolve(self, plan: EpochPlan, position: int, place: tuple[int, int]) -> tuple[int, int]:
        """Return the (episode, frame) to deliver at a position: `place`, or its stand-in."""
        if place[0] not in self._reasons:
            return place
        position %= plan.num_frames
        episodes, frames = self.plan_of(plan).slice(position, position + 1)
        return int(episodes[0]), int(frames[0])

    def plan_of(self, plan: EpochPlan) -> EpochPlan:
        """Return the plan with the places of all bad episodes filled."""
        with self._lock:
            bad = tuple(sorted(self._reasons))
        if bad == plan.quarantined:
            return plan
        cached = self._plans.get(plan.epoch)
        if cached is None or cached.quarantined != bad:
            cached = plan.replace(quarantined=bad)
            self._plans = {plan.epoch: cached}
        return cached
