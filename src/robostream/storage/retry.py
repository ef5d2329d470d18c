# SPDX-License-Identifier: Apache-2.0
"""Retries with backoff, request counters, and a rate limit per server.

A server that answers "too many requests" means the machine or the whole cluster, not one process.
So each server has a small file that all processes of the machine read before a request: when the
next request may be sent, and the gap between requests. The gap doubles when a request is throttled
and shrinks while requests succeed, by the same share every second whatever the number of requests.
So machines that share a server's limit converge to their shares of it. A server that never
throttled has no gap.
"""

from __future__ import annotations

import logging
import math
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from robostream import config
from robostream.errors import UnreachableError
from robostream.storage.cache_folder import lock_descriptor, make_private_folder, open_private
from robostream.storage.location import digest, redact

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRAFFIC = ("requests", "bytes_fetched", "bytes_read", "retries", "throttled_s", "stalls")
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 10.0
# A server that throttles is not broken: requests are repeated for this long.
_MAX_THROTTLED_S = 600.0
# More idle connections than this that are closed in a row are no coincidence.
_MAX_STALE = 16
# From the system, so that forked processes do not draw the same numbers.
_random = random.SystemRandom()

_FORMAT = struct.Struct("<ddd")
_FIRST_GAP_S = 0.01
_MAX_GAP_S = 2.0
_MIN_GAP_S = 0.002
# The rate doubles in ten seconds without throttling.
_RECOVERY_PER_S = math.log(2) / 10
# The longest wait for a request: the file may come from another clock.
_MAX_WAIT_S = 120.0


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
            taken, self._counts = self._counts, dict.fromkeys(TRAFFIC, 0.0)
        return tuple(taken.values())


class TransientError(Exception):
    """A failure that a retry may cure; `wait_s` is the wait that the server asks for, if any.

    Its kind is "throttled" if the server says that it gets too many requests, "stall" if a response
    stopped coming, "stale" if the server had closed an idle connection. That is no failure of the
    server, so the request is repeated at once over a fresh connection.
    """

    def __init__(self, reason: str, kind: str = "failure", *, wait_s: float | None = None) -> None:
        super().__init__(redact(reason))
        self.kind = kind
        self.wait_s = wait_s


class RateState(NamedTuple):
    """When the next request may be sent, the gap between requests, when the gap last widened."""

    next_at: float = 0.0
    gap_s: float = 0.0
    widened_at: float = 0.0

    def schedule(self, now: float) -> tuple[RateState, float]:
        """Return the state after one more request, and when that request may be sent. Pure."""
        send_at = min(max(now, self.next_at), now + _MAX_WAIT_S)
        return self._replace(next_at=send_at + self.gap_s), send_at

    def throttled(self, now: float, sent_at: float, wait_s: float) -> RateState:
        """Return the state after a throttled request. Pure."""
        # Requests in flight together are throttled together; they widen the gap once.
        next_at = max(self.next_at, now + wait_s)
        if sent_at <= self.widened_at:
            return self._replace(next_at=next_at)
        gap_s = min(max(2 * self.gap_s, _FIRST_GAP_S), _MAX_GAP_S)
        return RateState(next_at, gap_s, now)

    def succeeded(self) -> RateState:
        """Return the state after a successful request. Pure."""
        gap_s = self.gap_s * math.exp(-_RECOVERY_PER_S * self.gap_s)
        return self._replace(gap_s=gap_s if gap_s > _MIN_GAP_S else 0.0)


class RateLimit:
    """The rate limit of one server. Thread-safe; shared by all processes that use the folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self._path = folder / digest(server)[:32]
        self._opened: tuple[int, int] | None = None

    def wait(self) -> float:
        """Block until a request may be sent; return the seconds waited."""
        now = time.time()
        state = self._read()
        if not state.gap_s and state.next_at <= now:
            return 0.0
        with self._locked() as state:
            after, send_at = state.schedule(now)
            self._write(after)
        wait_s = max(send_at - now, 0.0)
        time.sleep(wait_s)
        return wait_s

    def note_throttled(self, sent_at: float, wait_s: float) -> None:
        """Record that the server throttled a request and wants none for `wait_s`."""
        with self._locked() as state:
            self._write(state.throttled(time.time(), sent_at, wait_s))

    def note_success(self) -> None:
        """Record that the server answered a request."""
        if self._read().gap_s:
            with self._locked() as state:
                self._write(state.succeeded())

    def _read(self) -> RateState:
        content = os.pread(self._fd(), _FORMAT.size, 0)
        return RateState(*_FORMAT.unpack(content)) if len(content) == _FORMAT.size else RateState()

    def _write(self, state: RateState) -> None:
        os.pwrite(self._fd(), _FORMAT.pack(*state), 0)

    @contextmanager
    def _locked(self) -> Iterator[RateState]:
        # Each lock has its own descriptor, so that threads and forked processes exclude each other.
        with lock_descriptor(os.open(f"/proc/self/fd/{self._fd()}", os.O_RDWR | os.O_CLOEXEC)):
            yield self._read()

    def _fd(self) -> int:
        # A forked process opens its own: it may have closed what it inherited.
        if self._opened is None or self._opened[0] != os.getpid():
            try:
                make_private_folder(self._path.parent)
                fd = open_private(self._path, os.O_RDWR | os.O_CREAT)
            except OSError:
                # The folder is not writable: this process keeps a limit of its own.
                fd = os.memfd_create("rate limit", os.MFD_CLOEXEC)
            self._opened = os.getpid(), fd
        return self._opened[1]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of requests to one server; `max_retries` counts failures, not throttling."""

    rate_limit: RateLimit
    traffic: Traffic
    max_retries: int

    def call(self, send: Callable[[], T], name: str) -> T:
        """Return what `send` returns, calling it again while it raises TransientError. Blocks."""
        began = time.monotonic()
        failures = throttled = stale = 0
        while True:
            self.traffic.add(throttled_s=self.rate_limit.wait(), requests=1)
            sent_at = time.time()
            try:
                result = send()
            except TransientError as error:
                is_throttled, is_stale = error.kind == "throttled", error.kind == "stale"
                stale += is_stale
                if is_stale and stale <= _MAX_STALE:
                    self.traffic.add(retries=1)
                    continue
                failures += not is_throttled
                throttled += is_throttled
                self.traffic.add(stalls=error.kind == "stall")
                elapsed_s = time.monotonic() - began
                may_wait = self.max_retries > 0 and elapsed_s < _MAX_THROTTLED_S
                if failures > self.max_retries or not may_wait:
                    raise UnreachableError(
                        f"{name}: gave up after {failures + throttled} attempts in "
                        f"{elapsed_s:.0f} s; the last one: {error}. Check the network and the "
                        "server, or raise ROBOSTREAM_REMOTE_IO_MAX_RETRIES."
                    ) from None
                self.traffic.add(retries=1)
                delay_s = backoff_s(failures, error.wait_s, _random.random())
                if is_throttled:  # all processes of the machine wait, spread by the rate limit
                    self.rate_limit.note_throttled(sent_at, delay_s)
                else:
                    time.sleep(delay_s)
                logger.debug("%s: retried: %s", name, error)
            else:
                self.rate_limit.note_success()
                return result


@lru_cache(maxsize=256)
def shared_rate_limit(server: str) -> RateLimit:
    """Return the rate limit of a server, one object per process."""
    return RateLimit(config.rate_limit_home(), server)


def retry_policy(server: str, traffic: Traffic) -> RetryPolicy:
    """Return the configured retry policy of a server."""
    return RetryPolicy(shared_rate_limit(server), traffic, config.remote_retries())


def backoff_s(failures: int, wait_s: float | None, draw: float) -> float:
    """Return the wait before the next attempt; `draw` is a random number in [0, 1). Pure."""
    # Exponential with full jitter; or, if the server says how long, a little longer than that.
    if wait_s is not None:
        return min(wait_s, _MAX_THROTTLED_S) + draw * _FIRST_DELAY_S
    return draw * min(_FIRST_DELAY_S * 2.0 ** max(failures - 1, 0), _MAX_DELAY_S)
