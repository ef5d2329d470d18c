# SPDX-License-Identifier: Apache-2.0
"""Bad episodes: raise at once, or set them aside and fill their places by the plan's rule."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from robostream.crew import Failed
from robostream.errors import DatasetError, SelectionError
from robostream.plan import EpochPlan

logger = logging.getLogger(__name__)

POLICIES = ("raise", "quarantine")


class WorkerTrace(Exception):  # not an error of its own: it shows where one happened
    """Where in a worker process an error happened."""


class BadEpisodes:
    """The episodes set aside so far, in the process of the consumer.

    The places of a bad episode are filled with frames of others by a rule of the plan: every
    healthy frame keeps its position, so ranks stay in step, and runs with the same list agree.
    """

    def __init__(self, policy: str) -> None:
        if policy not in POLICIES:
            raise SelectionError(f"on_bad_episode must be one of {POLICIES}, got {policy!r}")
        self._policy = policy
        self._reasons: dict[int, str] = {}

    def reasons(self) -> dict[int, str]:
        """Return a copy of the list: episode -> reason."""
        return dict(self._reasons)

    def add(self, reasons: Mapping[int, str]) -> None:
        """Add episodes that are known to be bad."""
        self._reasons = dict(reasons) | self._reasons

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reasons": self.reasons()}

    def set_aside(self, failed: Failed, plan: EpochPlan) -> None:
        """Set the episode of a sample that cannot be built aside, or raise what went wrong.

        Another iterator may have set it aside since this one, with the order `plan`, began.
        """
        error = failed.error
        is_new = failed.episode not in plan.quarantined
        if self._policy == "quarantine" and isinstance(error, DatasetError) and is_new:
            if failed.episode not in self._reasons:
                self._reasons[failed.episode] = str(error)
                logger.warning("episode %d is set aside: %s", failed.episode, error)
            return
        sample = (
            f"while building the sample of episode {failed.episode}, frame {failed.frame}, at "
            f"position {failed.position} of the epoch"
        )
        # The type stays what users catch; the text says which sample, if there is a text.
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"{error.args[0]} ({sample})",)
        raise error from WorkerTrace(f"{sample}\n{failed.trace}")

    def plan_of(self, plan: EpochPlan) -> EpochPlan:
        """Return the plan with the places of all bad episodes filled."""
        return plan.replace(quarantined=sorted(self._reasons))
