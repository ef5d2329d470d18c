# SPDX-License-Identifier: Apache-2.0
"""Runs a function in child processes, for commands that make datasets.

Children are new interpreters, because encoders and their threads do not survive a fork. They import
nothing from the current folder, do not receive Ctrl-C, and end with their parent even if it is
killed.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeVar

from robostream.errors import WriteError
from robostream.progress import Progress

Job = TypeVar("Job")
Result = TypeVar("Result")
Send = Callable[[Any], object]

# Prefix for code given with -c, for which Python looks for modules in the current folder first.
# `sys` is built in. (Python 3.10 has no option for this.)
WITHOUT_CURRENT_FOLDER = "import sys; sys.path[:] = filter(None, sys.path); "
# A child imports this module without the current folder, then gets the whole path of its parent.
_BOOT = (
    "import sys; path = sys.argv[2:]; sys.path[:] = filter(None, path); "
    "from robostream.tools.child_processes import serve; "
    "sys.path[:] = path; serve(int(sys.argv[1]))"
)


def run_in_children(
    function: Callable[[Job, Send], Result],
    jobs: Iterable[Job],
    *,
    processes: int,
    per_child: int,
    ahead: int,
    on_message: Send = lambda message: None,
) -> Iterator[Result]:
    """Yield `function(job, send)` of each job, in the order of the jobs; raise its exceptions.

    `function` must be importable; what it sends goes to `on_message`. A child holds `per_child`
    jobs at a time. `ahead` jobs may be started before the first result of them is taken. Closing
    the iterator kills the children. Raises WriteError if one dies.
    """
    waiting = iter(jobs)
    results: dict[int, Result] = {}
    started = taken = 0
    with ExitStack() as stack:
        held = {stack.enter_context(_child()): deque[int]() for _ in range(processes)}
        while True:
            child = min(held, key=lambda child: len(held[child]))
            is_free = len(held[child]) < per_child and started < taken + ahead
            if is_free and (job := next(waiting, None)) is not None:
                child.send((function, job))
                held[child].append(started)
                started += 1
                continue
            if taken == started:
                return
            for ready in wait([child for child in held if held[child]]):
                kind, value = _receive(ready)
                if kind == "message":
                    on_message(value)
                else:
                    results[held[ready].popleft()] = value
            while taken in results:
                taken += 1
                yield results.pop(taken - 1)


def run_jobs(
    function: Callable[[Job, Callable[[int], object]], Result],
    jobs: Sequence[Job],
    *,
    processes: int,
    label: str,
    frames: int,
    may_run_here: bool = True,
) -> list[Result]:
    """Return the results of all jobs, which send the number of frames done to a progress bar.

    With `may_run_here`, one process alone is this one.
    """
    processes = min(processes, len(jobs))
    with Progress(label, frames, "frames") as progress:
        if may_run_here and processes == 1:
            return [function(job, progress.update) for job in jobs]
        return list(
            run_in_children(
                function,
                jobs,
                processes=processes,
                per_child=1,
                ahead=len(jobs),
                on_message=progress.update,
            )
        )


@contextmanager
def _child() -> Iterator[Any]:
    """Start a child, yield the connection to it, and kill it."""
    ours, theirs = Pipe()
    command = [sys.executable, "-c", _BOOT, str(theirs.fileno()), *map(str, sys.path)]
    # A terminal sends Ctrl-C to the processes of one session; a child has its own.
    with ours:
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            yield ours
        finally:
            process.kill()
            process.wait()


def _receive(child: Any) -> tuple[str, Any]:
    try:
        kind, value = child.recv()
    except (EOFError, ConnectionError) as error:
        raise WriteError(
            "a child process died: its encoder stalled, or the system killed it for lack of "
            "memory. Run the command again; fewer --jobs need less memory."
        ) from error
    if kind == "error":
        failure, trace = value
        raise failure from RuntimeError(f"in a child process:\n{trace}")
    return kind, value


def serve(descriptor: int) -> None:
    """Run the functions that the parent sends. The process ends when the parent does."""
    parent = Connection(descriptor)
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive_calls, args=(parent, calls), daemon=True).start()
    while True:
        function, job = calls.get()
        try:
            answer: Any = "result", function(job, lambda message: parent.send(("message", message)))
        except Exception as error:
            answer = "error", (error, traceback.format_exc())
        parent.send(answer)


def _receive_calls(parent: Connection, calls: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            calls.put(parent.recv())
    except Exception as error:
        if not isinstance(error, EOFError | ConnectionError):
            traceback.print_exc()
        os._exit(1)
