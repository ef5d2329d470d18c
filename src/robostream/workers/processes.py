# SPDX-License-Identifier: Apache-2.0
"""Starting and ending worker processes, undisturbed by signals and interpreter shutdown."""

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

from robostream.workers.protocol import Channel

# Python puts the current folder first on the path, where a file may have the name of any module. So
# nothing is imported before the path is replaced (`os` is loaded already). The path becomes the
# consumer's, but the standard library comes first until our own modules are imported.
_BOOT = (
    "import os, sys; path, lib = sys.argv[3:], os.path.dirname(os.__file__); "
    "sys.path[:] = sorted(path, key=lambda p: p not in (lib, lib + '/lib-dynload')); "
    "from robostream.workers.worker_main import main; "
    "sys.path[:] = path; main(int(sys.argv[1]), int(sys.argv[2]))"
)
# One thread per numeric library: with more, workers would compete for the cores.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Decoders and Python go through much memory from malloc. In large pages, the processor looks up
# fewer addresses, which takes long in virtual machines.
_LARGE_PAGES = "glibc.malloc.hugetlb"
# SLURM and people send these to all processes of a job. The consumer decides what ends, and may
# still take a last batch; workers end with it.
_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# A worker in the middle of a long batch is killed after this time.
_END_S = 1.0
_KILL_S = 10.0
# A worker that has closed its channel ends within this time.
_DYING_S = 0.5
_OUT_OF_MEMORY = "Out of memory? Then lower frame_cache_bytes, num_workers or prefetch_factor."


class WorkerProcess(subprocess.Popen[bytes]):
    """A worker process, a fresh interpreter that serves the other end of a channel."""

    def end(self, until: float) -> None:
        """Wait until a time for the process to end, then kill it."""
        try:
            self.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            with suppress(subprocess.TimeoutExpired):  # a stuck disk may keep it alive
                self.wait(_KILL_S)

    def explain_end(self) -> str:
        """Return how the process ended after it closed its channel, and what would help."""
        try:
            code = self.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return "closed its channel but has not ended"
        if code == 0 and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            return (
                "has ended. A program that ignores SIGCHLD cannot learn why; call "
                "signal.signal(signal.SIGCHLD, signal.SIG_DFL). " + _OUT_OF_MEMORY
            )
        if code >= 0:
            return f"ended with exit code {code}. Look at what it printed."
        names = {number.value: number.name for number in signal.Signals}
        return f"was killed by signal {-code} ({names.get(-code, 'unnamed')}). {_OUT_OF_MEMORY}"

    def disown(self) -> None:
        """Forget the process; for a fork, which cannot wait for its parent's children."""
        self.returncode = 0


def start_worker() -> tuple[Channel, WorkerProcess]:
    """Return a new worker process and the channel to it."""
    channel, theirs = Channel.pair()
    with theirs, _signals_blocked():
        path = [str(folder) for folder in sys.path]
        try:
            process = WorkerProcess(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), *path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A program may be started with these closed. Files that a worker opens must not get
                # their numbers.
                stdout=None if sys.__stdout__ else subprocess.DEVNULL,
                stderr=None if sys.__stderr__ else subprocess.DEVNULL,
                env=_environment(),
                # A terminal sends Ctrl-C to its whole process group. Workers are in another one.
                start_new_session=True,
            )
        except BaseException:
            channel.close()
            raise
    return channel, process


def _environment() -> dict[str, str]:
    """Return the environment of a worker; the user's own choice of page sizes stays."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if _LARGE_PAGES not in tunables:
        tunables = f"{tunables}:{_LARGE_PAGES}=1".lstrip(":")
    return os.environ | _ONE_THREAD | {"GLIBC_TUNABLES": tunables}


def end_workers(process: int, workers: list[WorkerProcess], channels: list[Channel]) -> None:
    """Close all channels; in the process that started the workers, wait until they have ended."""
    with signals_held():
        for channel in channels:
            channel.close()
        until = time.monotonic() + _END_S
        for worker in workers:
            if process == os.getpid():
                worker.end(until)
            else:
                worker.disown()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals for the processes that this block starts: they inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_held() -> Iterator[None]:
    """Run the program's signal handlers after this block, so that none raises in the middle of it.

    Blocking signals is not enough: another thread may receive them, and Python still runs the
    handler in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers never run here
        return
    handlers = {n: how for n in signal.valid_signals() if callable(how := signal.getsignal(n))}
    received: list[int] = []
    is_over = False

    def hold(number: int, frame: Any) -> None:
        # A handler that is restored may raise before the others are; this one then forwards.
        if is_over:
            handlers[signal.Signals(number)](number, frame)
        else:
            received.append(number)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        finally:
            is_over = True
            for late in received:
                signal.raise_signal(late)


def park_at_shutdown() -> None:
    """Park daemon threads during interpreter shutdown.

    The interpreter has ended the workers and closed their memory by then, and ends this thread too,
    so the thread should not report an error. The main thread still runs exit handlers then.
    """
    while threading.current_thread().daemon and not any(
        thread.is_alive() and not thread.daemon for thread in threading.enumerate()
    ):
        time.sleep(1)
