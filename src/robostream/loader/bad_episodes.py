# SPDX-License-Identifier: Apache-2.0
"""Bad episodes: raise at once, or set them aside and fill their places by the plan's rule."""

from __future__ import annotations

import logging
from collections.abc import Mapping

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

    def set_aside(self, failed: Failed) -> None:
        """Set the episode of a sample that cannot be built aside, or raise what went wrong."""
        error = failed.error
        if self._policy == "quarantine" and isinstance(error, DatasetError):
            if failed.episode in self._reasons:
                raise error
            self._reasons[failed.episode] = str(error)
            logger.warning("episode %d is set aside: %s", failed.episode, error)
            return
        _locate(error, failed)
        raise error from WorkerTrace(f"\n{failed.trace}")

    def plan_of(self, plan: EpochPlan) -> EpochPlan:
        """Return the plan with the places of all bad episodes filled."""
        return plan.replace(quarantined=sorted(self._reasons))


def _locate(error: Exception, failed: Failed) -> None:
    """Append to an error's text which sample it happened on; the type stays what users catch."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        sample = (
            f"while building the sample of episode {failed.episode}, frame {failed.frame}, at "
            f"position {failed.position} of the epoch"
        )
        error.args = (f"{error.args[0]} ({sample})",)
