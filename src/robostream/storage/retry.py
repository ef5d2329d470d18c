# SPDX-License-Identifier: Apache-2.0
"""Retries with backoff within the server's rate limit, and request counters."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from robostream import config
from robostream.errors import UnreachableError
from robostream.storage.location import redact
from robostream.storage.rate_limit import RateLimit

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRAFFIC = (
    "requests",
    "bytes_fetched",
    "bytes_read",
    "retries",
    "throttled_s",
    "stalls",
)
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 10.0
# A server that throttles is not broken: requests are repeated for this long.
_MAX_THROTTLED_S = 600.0
# More idle connections than this that are closed in a row are no coincidence.
_MAX_STALE = 16
# From the system, so that forked processes do not draw the same numbers.
_random = random.SystemRandom()


class Traffic:
    """Counters by the names of `TRAFFIC`. Thread-safe.

    `requests` includes `retries`. `bytes_fetched` came from servers; `bytes_read` went to readers,
    from servers or the cache. `throttled_s` is time spent waiting because of a rate limit;
    `stalls` counts responses that stopped coming.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(TRAFFIC, 0.0)
        self._lock = threading.Lock()

    def add(self, **amounts: float) -> None:
        """Add to counters by name."""
        with self._lock:
            for name, amount in amounts.items():
                self._counts[name] += amount

    def take(self) -> tuple[float, ...]:
        """Return all counters in the order of `TRAFFIC`, and reset them."""
        with self._lock:
            taken = tuple(self._counts[name] for name in TRAFFIC)
            self._counts = dict.fromkeys(TRAFFIC, 0.0)
        return taken


class TransientError(Exception):
    """A failure that a retry may cure.

    Args:
        reason: What happened, for the final error.
        is_throttled: Whether the server says that it gets too many requests.
        wait_s: The wait that the server asks for, if any.
        is_stall: Whether a response stopped coming.
        is_stale: Whether the server had closed an idle connection. That is no failure of the
            server, so the request is repeated at once over a fresh connection.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_throttled: bool = False,
        wait_s: float | None = None,
        is_stall: bool = False,
        is_stale: bool = False,
    ) -> None:
        super().__init__(redact(reason))
        self.is_throttled = is_throttled
        self.wait_s = wait_s
        self.is_stall = is_stall
        self.is_stale = is_stale


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of requests to one server; `max_retries` counts failures, not throttling."""

    rate_limit: RateLimit
    traffic: Traffic
    max_retries: int

    def call(self, send: Callable[[], T], name: str) -> T:
        """Return what `send` returns, calling it again while it raises TransientError. Blocks.

        Args:
            send: Sends one request.
            name: The file, for messages.
        """
        began = time.monotonic()
        failures = throttled = stale = 0
        while True:
            self.traffic.add(throttled_s=self.rate_limit.wait(), requests=1)
            sent_at = time.time()
            try:
                result = send()
            except TransientError as error:
                stale += error.is_stale
                if error.is_stale and stale <= _MAX_STALE:
                    self.traffic.add(retries=1)
                    continue
                failures += not error.is_throttled
                throttled += error.is_throttled
                self.traffic.add(stalls=error.is_stall)
                elapsed_s = time.monotonic() - began
                may_wait = self.max_retries > 0 and elapsed_s < _MAX_THROTTLED_S
                if failures > self.max_retries or not may_wait:
                    raise UnreachableError(
                        f"{name}: gave up after {failures + throttled} attempts in "
                        f"{elapsed_s:.0f} s; the last one: {error}. Check the network and the "
                        "server, or raise ROBOSTREAM_REMOTE_IO_MAX_RETRIES."
                    ) from None
                self._pause(error, failures, sent_at)
                logger.debug("%s: retried: %s", name, error)
            else:
                self.rate_limit.note_success()
                return result

    def _pause(self, error: TransientError, failures: int, sent_at: float) -> None:
        self.traffic.add(retries=1)
        delay_s = backoff_s(failures, error.wait_s, _random.random())
        if error.is_throttled:
            # All processes of the machine wait, spread by the rate limit.
            self.rate_limit.note_throttled(sent_at, delay_s)
        else:
            time.sleep(delay_s)


@lru_cache(maxsize=256)
def shared_rate_limit(server: str) -> RateLimit:
    """Return the rate limit of a server, one object per process."""
    return RateLimit(config.rate_limit_home(), server)


def retry_policy(server: str, traffic: Traffic) -> RetryPolicy:
    """Return the configured retry policy of a server."""
    return RetryPolicy(shared_rate_limit(server), traffic, config.remote_retries())


def backoff_s(failures: int, wait_s: float | None, draw: float) -> float:
    """Return the wait before the next attempt; `draw` is a random number in [0, 1). Pure.

    Exponential with full jitter; or, if the server says how long, a little longer than that.
    """
    if wait_s is not None:
        return min(wait_s, _MAX_THROTTLED_S) + draw * _FIRST_DELAY_S
    return draw * min(_FIRST_DELAY_S * 2.0 ** max(failures - 1, 0), _MAX_DELAY_S)
