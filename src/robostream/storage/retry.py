# SPDX-License-Identifier: Apache-2.0
"""What was asked of servers, and how it went."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from robostream.errors import UnreachableError
from robostream.storage.location import redact
from robostream.storage.rate_limit import RateLimit

TRAFFIC = (
    "requests",
    "bytes_fetched",
    "bytes_read",
    "retries",
    "throttled_s",
    "stalls",
)


class Traffic:
    """Counts by the names of `TRAFFIC`, since they were last taken. Thread-safe.

    A request is a question to a server, answered or not; a retry one that was asked again. Bytes
    read are those that readers got, from a server or from the cache. A second is throttled if it
    was spent waiting because a server asked for it; a stall is an answer that stopped coming.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(TRAFFIC, 0.0)
        self._lock = threading.Lock()

    def add(self, **amounts: float) -> None:
        """Add to counts by name."""
        with self._lock:
            for name, amount in amounts.items():
                self._counts[name] += amount

    def take(self) -> tuple[float, ...]:
        """Return everything in the order of `TRAFFIC`, and begin anew."""
        with self._lock:
            taken = tuple(self._counts[name] for name in TRAFFIC)
            self._counts = dict.fromkeys(TRAFFIC, 0.0)
        return taken


logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 10.0
# A server that refuses is not broken: it is asked for this long, however often that is.
_PATIENCE_S = 600.0
# More connections in a row that were closed while idle are no coincidence.
_MOST_STALE = 16
# Drawn from the system, so that processes forked from one another do not draw the same.
_random = random.SystemRandom()


class TransientError(Exception):
    """A failure that passes: asking again may help.

    Args:
        reason: What happened, for the error if it does not pass.
        is_refusal: Whether the server said that it is asked too much.
        wait_s: How long the server wants not to be asked, if it says so.
        is_stall: Whether an answer stopped coming.
        is_stale: Whether the connection had been closed while it was idle, which says nothing about
            the server: it is asked again at once, over a fresh one.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_refusal: bool = False,
        wait_s: float | None = None,
        is_stall: bool = False,
        is_stale: bool = False,
    ) -> None:
        super().__init__(redact(reason))
        self.is_refusal = is_refusal
        self.wait_s = wait_s
        self.is_stall = is_stall
        self.is_stale = is_stale


@dataclass(frozen=True, slots=True)
class Retrying:
    """How one server is asked.

    Attributes:
        pace: When a request may be sent.
        traffic: Counts requests.
        max_retries: How often a request that failed is sent again; 0 for never.
    """

    pace: RateLimit
    traffic: Traffic
    max_retries: int

    def until_answered(self, ask: Callable[[], T], name: str) -> T:
        """Return what `ask` returns, calling it again while it raises Passing. Blocks.

        Args:
            ask: Sends one request.
            name: What is asked for, for messages.
        """
        began = time.monotonic()
        failures = refusals = stale = 0
        while True:
            self.traffic.add(throttled_s=self.pace.wait(), requests=1)
            sent_at = time.time()
            try:
                answer = ask()
            except TransientError as passing:
                stale += passing.is_stale
                if passing.is_stale and stale <= _MOST_STALE:
                    self.traffic.add(retries=1)
                    continue
                failures += not passing.is_refusal
                refusals += passing.is_refusal
                self.traffic.add(stalls=passing.is_stall)
                is_patient = self.max_retries > 0 and time.monotonic() - began < _PATIENCE_S
                if failures > self.max_retries or not is_patient:
                    attempts = failures + refusals
                    raise UnreachableError(
                        f"{name}: gave up after {attempts} attempts in "
                        f"{time.monotonic() - began:.0f} s; the last one: {passing}. Check the "
                        "network and the server, or raise ROBOSTREAM_REMOTE_IO_MAX_RETRIES."
                    ) from None
                self._pause(passing, failures, sent_at)
                logger.debug("%s: asked again: %s", name, passing)
            else:
                self.pace.answer()
                return answer

    def _pause(self, passing: TransientError, failures: int, sent_at: float) -> None:
        """Wait as long as a failure asks for."""
        self.traffic.add(retries=1)
        delay_s = backoff_s(failures, passing.wait_s, _random.random())
        if passing.is_refusal:
            # All processes of the machine wait; the pace itself spreads them.
            self.pace.refuse(sent_at, delay_s)
        else:
            time.sleep(delay_s)


def backoff_s(failures: int, wait_s: float | None, draw: float) -> float:
    """Return how long to wait before the next attempt. Pure.

    Exponential with full jitter, except where the server says how long; then a little longer, so
    that not everybody comes back at once.

    Args:
        failures: How many attempts failed.
        wait_s: What the server asked for.
        draw: A random number in [0, 1).
    """
    if wait_s is not None:
        return min(wait_s, _PATIENCE_S) + draw * _FIRST_DELAY_S
    return draw * min(_FIRST_DELAY_S * 2.0 ** max(failures - 1, 0), _LONGEST_DELAY_S)
