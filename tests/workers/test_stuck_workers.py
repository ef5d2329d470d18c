# SPDX-License-Identifier: Apache-2.0
"""Workers that no longer answer: `timeout` bounds every wait for them, and they are replaced."""

from __future__ import annotations

import os
import signal

import pytest

from robostream.errors import WorkerError
from tests.loader.programs import is_alive, run
from tests.loader.streams import blind_stream, flat, open_loader


def test_stuck_workers_are_replaced_after_a_timeout() -> None:
    """As often as it happens: an error that names the worker, then new workers and all frames."""
    loader = open_loader(blind_stream(), 1, num_workers=2, prefetch_factor=1)
    for _ in range(2):
        loader.timeout = 60
        next(iter(loader))  # workers take a while to start
        assert loader._running is not None
        old = loader._running.pool.pids
        os.kill(old[0], signal.SIGSTOP)
        loader.timeout = 0.2
        with pytest.raises(WorkerError, match=rf"timeout=0\.2 s.*worker 0 of 2 \(pid {old[0]}\)"):
            list(loader)
        assert not any(map(is_alive, old))

    loader.timeout = 60
    assert sorted(flat(loader)) == list(range(62))


def test_an_iterator_does_not_wait_for_a_stuck_worker() -> None:
    """Beginning an iterator waits for dropped ones to end; the timeout bounds that, too."""
    run(
        """
from robostream.errors import WorkerError
loader = open_loader(2)
loader.timeout = 0.5
kept = [iter(loader)]
os.kill(loader._running.pool.pids[0], signal.SIGSTOP)
try:
    while True:
        kept = [iter(loader), *kept[:2]]
except WorkerError as error:
    assert "within timeout=0.5 s" in str(error), error
loader.timeout = 0
assert frames(loader) == list(range(62))
"""
    )
