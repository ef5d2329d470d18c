# SPDX-License-Identifier: Apache-2.0
"""Free ports for test servers, and forgetting what is known of earlier servers."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from robostream.storage.connections import connections
from robostream.storage.retry import shared_rate_limit

# Below those that the system gives away by itself, so many for each process that runs tests.
_FIRST, _EACH, _PROCESSES = 10_000, 200, 10
# Servers that need several ports, whose numbers follow from the first.
_FIRST_BASE, _BASES_EACH, _BASES_APART = 12_000, 1_000, 10


def free_port() -> int:
    """Return a free port that neither the system nor a parallel test assigns."""
    first = _FIRST + _EACH * _process()
    while True:
        port = random.SystemRandom().randrange(first, first + _EACH)
        if _is_free(port):
            return port


def free_ports(distances: Iterable[int]) -> int:
    """Return a port such that those at some distances from it are free."""
    first, distances = _FIRST_BASE + _BASES_EACH * _process(), list(distances)
    while True:
        base = random.SystemRandom().randrange(first, first + _BASES_EACH, _BASES_APART)
        if all(_is_free(base + distance) for distance in distances):
            return base


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def forget_servers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget connections and rate limits: the next test's server may have the same port."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(home))
    connections().close_idle()
    shared_rate_limit.cache_clear()


def _process() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _PROCESSES
