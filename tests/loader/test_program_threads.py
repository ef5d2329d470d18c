# SPDX-License-Identifier: Apache-2.0
"""Whole programs whose threads use loaders when the main thread has ended, or the program ends."""

from __future__ import annotations

import pytest

from tests.loader.programs import run

pytestmark = pytest.mark.long


def test_a_daemon_threads_loop_ends_with_the_program_without_a_word(device: str | None) -> None:
    """The program's end ends the workers; the thread that uses them prints no error."""
    run(
        f"device = {device!r}"
        + """
begun = threading.Barrier(5)
def loop(loader):
    next(iter(loader))
    begun.wait()
    while True:
        frames(loader)
for loader in [open_loader(1, device=device) for _ in range(4)]:
    threading.Thread(target=loop, args=(loader,), daemon=True).start()
begun.wait()
time.sleep(0.5)
"""
    )


def test_a_program_may_end_while_a_daemon_thread_starts_workers() -> None:
    """The memory they are told of is closed by then; the thread prints no error."""
    run("""
import weakref
from robostream.loader import running_pool as team
real, is_at_it = team.WorkerPool, threading.Event()
def late(*arguments):
    is_at_it.set()
    threading.main_thread().join()
    time.sleep(1)
    return real(*arguments)
team.WorkerPool = late
# Of what is finalized at the end, the oldest comes last.
weakref.finalize(is_at_it, time.sleep, 3)
loader = open_loader(1)
threading.Thread(target=lambda: next(iter(loader)), daemon=True).start()
is_at_it.wait()
""")


def test_a_thread_that_outlives_the_main_thread_is_told_of_a_closed_loader() -> None:
    """It is no daemon, so the program waits for it; it must not wait for the program."""
    found = run("""
def loop(loader):
    threading.main_thread().join()
    batches = iter(loader)
    loader.close()
    try:
        next(batches)
    except Exception as error:
        print(type(error).__name__)
threading.Thread(target=loop, args=(open_loader(1),)).start()
""")

    assert found == "WorkerError\n"


def test_a_daemon_thread_is_told_while_others_go_on() -> None:
    """The main thread has ended, but the program has not: a second thread gets its batch."""
    found = run("""
from robostream.loader import running_pool as team
real, told = team.WorkerPool, threading.Event()
def fails(*arguments):
    team.WorkerPool = real
    raise OSError("no room")
def feed():
    threading.main_thread().join()
    team.WorkerPool = fails
    try:
        next(iter(loader))
    except OSError as error:
        print(error)
        told.set()
def train():
    told.wait()
    print(len(next(iter(loader))["index"]))
loader = open_loader(1)
threading.Thread(target=feed, daemon=True).start()
threading.Thread(target=train).start()
""")

    assert found == "no room\n4\n"


def test_a_loop_in_a_thread_outlives_the_main_thread(device: str | None) -> None:
    """It delivers all of its epochs, though the script has come to its end."""
    found = run(
        f"device = {device!r}"
        + """
def loop(loader):
    threading.main_thread().join()
    print([frames(loader) == list(range(62)) for _ in range(3)])
threading.Thread(target=loop, args=(open_loader(1, device=device),)).start()
"""
    )

    assert found == "[True, True, True]\n"
