# SPDX-License-Identifier: Apache-2.0
"""Episodes that cannot be read: raise an error, or quarantine them; others stand in for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from robostream.errors import DatasetError, ReplacedFileError, SelectionError, tell_where
from robostream.plan import EpochPlan
from robostream.workers import Failed

logger = logging.getLogger(__name__)

POLICIES = ("raise", "quarantine")


class WorkerTrace(Exception):
    """The cause of an error in a worker process; shows the traceback there."""


class BadEpisodes:
    """The quarantined episodes, in the consumer's process.

    The plan chooses the frames of other episodes that stand in for those of a bad one. Every
    healthy frame keeps its position, so ranks stay in step, and runs with the same list have one
    order.
    """

    def __init__(self, policy: str) -> None:
        if policy not in POLICIES:
            raise SelectionError(f"on_bad_episode must be one of {POLICIES}, got {policy!r}")
        self._policy = policy
        self._reasons: dict[int, str] = {}

    def reasons(self) -> dict[int, str]:
        """Return the reason for each quarantined episode."""
        return dict(self._reasons)

    def summary(self) -> str:
        """Return how many there are, and which for each reason; empty if there are none."""
        if not self._reasons:
            return ""
        episodes: dict[str, list[int]] = {}
        for episode, reason in self._reasons.items():
            episodes.setdefault(reason, []).append(episode)
        listed = (f"{', '.join(map(str, sorted(e)))}: {reason}" for reason, e in episodes.items())
        return f"{len(self._reasons)} episodes are quarantined: {'; '.join(listed)}"

    def add(self, reasons: Mapping[int, str]) -> None:
        """Add the episodes that a state lists."""
        if new := sorted(set(reasons) - set(self._reasons)):
            logger.warning(
                "episodes %s stay quarantined, as they were when the state was saved; a run that "
                "begins without a state reads them again",
                ", ".join(map(str, new)),
            )
        self._reasons = dict(reasons) | self._reasons

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reasons": self.reasons()}

    def handle(self, failed: Failed, plan: EpochPlan) -> None:
        """Quarantine the episode of a sample that cannot be built, or raise the error.

        A replaced file is only logged: workers begin again, and read it again. `plan` is the order
        of the iterator that met it: another one may have quarantined the episode since it began.
        """
        error = failed.error
        if isinstance(error, ReplacedFileError):
            logger.warning("%s", error)
            return
        is_new = failed.episode not in plan.quarantined
        if self._policy == "quarantine" and isinstance(error, DatasetError) and is_new:
            if failed.episode not in self._reasons:
                # A broken file is a warning once, not with each of its episodes.
                level = logging.INFO if str(error) in self._reasons.values() else logging.WARNING
                self._reasons[failed.episode] = str(error)
                logger.log(level, "episode %d is quarantined: %s", failed.episode, error)
            return
        sample = (
            f"while building the sample of episode {failed.episode}, frame {failed.frame}, at "
            f"position {failed.position} of the epoch"
        )
        tell_where(error, sample)
        raise error from WorkerTrace(f"{sample}\n{failed.trace}")

    def plan_of(self, plan: EpochPlan) -> EpochPlan:
        """Return the plan in which other frames stand in for those of all bad episodes."""
        return plan.replace(quarantined=sorted(self._reasons))
