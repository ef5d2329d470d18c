# SPDX-License-Identifier: Apache-2.0
"""Starting and ending the processes of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from robostream.workers.channel import Channel

# Python has put the current folder first on the path, and a file there may have the name of any
# module, so that nothing is imported before (`os` is there already). Then the path is the
# consumer's, but until our own modules are imported, the standard library comes first.
_BOOT = (
    "import os, sys; path, lib = sys.argv[3:], os.path.dirname(os.__file__); "
    "sys.path[:] = sorted(path, key=lambda p: p not in (lib, lib + '/lib-dynload')); "
    "from robostream.workers.worker_main import main; "
    "sys.path[:] = path; main(int(sys.argv[1]), int(sys.argv[2]))"
)
# One thread per numeric library: with more, the workers would compete for the cores.
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# SLURM and people send these to all processes of a job. They are for the consumer, which decides
# what ends, and may have a last batch to take: workers end with it.
_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# A worker that is in the middle of a long batch is killed after this time.
_END_S = 1.0
_KILL_S = 10.0


def start_worker() -> tuple[Channel, subprocess.Popen[bytes]]:
    """Return a new worker process and the channel to it."""
    channel, theirs = Channel.pair()
    with theirs, _signals_blocked():
        path = [str(folder) for folder in sys.path]
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), *path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A program may be started with these closed. What a worker opens must not take
                # their place.
                stdout=None if sys.__stdout__ else subprocess.DEVNULL,
                stderr=None if sys.__stderr__ else subprocess.DEVNULL,
                env=os.environ | _QUIET,
                # A terminal sends Ctrl-C to all processes of its group. Workers are in another one.
                start_new_session=True,
            )
        except BaseException:
            channel.close()
            raise
    return channel, process


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start processes in this block that never see some signals: they inherit what is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_held() -> Iterator[None]:
    """Run the program's signal handlers after this block, so that none raises in the middle of it.

    Blocking signals does not do that: another thread may take them, and Python runs the handler in
    the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers never run here
        return
    handlers = {n: how for n in signal.valid_signals() if callable(how := signal.getsignal(n))}
    came: list[int] = []
    is_over = False

    def hold(number: int, frame: Any) -> None:
        # An interrupt while handlers are put back may leave this one.
        if is_over:
            handlers[signal.Signals(number)](number, frame)
        else:
            came.append(number)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        is_over = True
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def end_workers(
    process: int, workers: list[subprocess.Popen[bytes]], channels: list[Channel]
) -> None:
    """Close all channels; in the process that started the workers, wait until they have ended."""
    with signals_held():
        for channel in channels:
            channel.close()
        if process != os.getpid():
            for worker in workers:
                worker.returncode = 0  # only the process that started a worker can wait for it
            return
        until = time.monotonic() + _END_S
        for worker in workers:
            try:
                worker.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                with suppress(subprocess.TimeoutExpired):  # a disk may not let it end
                    worker.wait(_KILL_S)
