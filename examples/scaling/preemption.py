# SPDX-License-Identifier: Apache-2.0
"""Being told to stop: some signals become a question that the loop asks at every step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# EX_TEMPFAIL of sysexits.h: nothing is wrong, try again. A batch script that sees it requeues the
# job; nothing else in Python or torch ends with it.
REQUEUE = 75
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Whether this process was asked to stop.

    The first Ctrl-C asks, the second ends the process. An exception in the middle of a step would
    leave the other processes waiting for this one, until their launcher kills them.
    """

    def __init__(self) -> None:
        self.is_made = False

    def _make(self, number: int, frame: FrameType | None) -> None:
        if self.is_made and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.is_made = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the signals that ask a job to stop into a request, until this block is left."""
    request = StopRequest()
    before = {number: signal.signal(number, request._make) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
