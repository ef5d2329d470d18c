# SPDX-License-Identifier: Apache-2.0
"""Processes that help a command.

They import nothing from the current folder, leave Ctrl-C to the command, and end when it does,
however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import util

# Python looks for modules in the current folder first where it is given code with -c. To begin code
# with; `sys` is built in. (Python 3.10 has no option for it.)
WITHOUT_CURRENT_FOLDER = "import sys; sys.path[:] = filter(None, sys.path); "


@contextmanager
def safe_imports() -> Iterator[None]:
    """Let processes that multiprocessing starts in the block import no file of the current folder.

    They get the path of this process as soon as multiprocessing itself is imported there.
    """
    start = util.spawnv_passfds

    def start_safely(path: bytes, args: Sequence[str], passfds: Sequence[int]) -> int:
        code = args.index("-c") + 1
        safe = [*args[:code], WITHOUT_CURRENT_FOLDER + args[code], *args[code + 1 :]]
        return start(path, safe, passfds)

    util.spawnv_passfds = start_safely  # type: ignore[assignment]
    try:
        yield
    finally:
        util.spawnv_passfds = start


@contextmanager
def no_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back; processes that are started in the block never get it, only their parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has. Returns at once."""
    threading.Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
