# SPDX-License-Identifier: Apache-2.0
"""Turns signals into a stop request that the training loop checks at every step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# EX_TEMPFAIL of sysexits.h: try again. The batch script requeues the job on this exit code, which
# neither Python nor torch uses.
REQUEUE = 75
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Whether this process was asked to stop.

    The first Ctrl-C requests a stop, the second ends the process. An exception in the middle of a
    step would leave the other processes waiting until their launcher kills them.
    """

    def __init__(self) -> None:
        self.is_made = False

    def _make(self, number: int, frame: FrameType | None) -> None:
        if self.is_made and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.is_made = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGUSR1 and SIGINT into a stop request within this block."""
    request = StopRequest()
    before = {number: signal.signal(number, request._make) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
