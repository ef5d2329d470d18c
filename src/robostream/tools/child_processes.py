# SPDX-License-Identifier: Apache-2.0
"""Child processes of a command.

They import nothing from the current folder, leave Ctrl-C to the command, and end when it does,
even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import util

# Prefix for code given with -c, for which Python looks for modules in the current folder first.
# `sys` is built in. (Python 3.10 has no option for this.)
WITHOUT_CURRENT_FOLDER = "import sys; sys.path[:] = filter(None, sys.path); "


@contextmanager
def safe_imports() -> Iterator[None]:
    """Keep multiprocessing children started in the block from importing from the current folder.

    They get the path of this process as soon as they have imported multiprocessing.
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
    """Defer Ctrl-C; processes started in the block never receive it, only their parent does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """End this process as soon as its parent has ended. Returns at once."""
    threading.Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
