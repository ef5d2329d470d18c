# SPDX-License-Identifier: Apache-2.0
"""One thread at a time uses a pool, and iterators end in between."""

from __future__ import annotations

import threading
from collections.abc import Callable

from robostream.workers.turns import Turns
from tests.threads import at_once


def do_nothing() -> None:
    pass


def test_one_thread_at_a_time_has_the_turn() -> None:
    """Threads that want it wait for each other."""
    turns, inside, most = Turns(), [], []

    def work(number: int) -> None:
        for _ in range(200):
            with turns.turn(lambda *_: None):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    at_once(4, work)

    assert set(most) == {1}


def test_an_iterator_ends_at_once_or_at_the_next_turn() -> None:
    """At once where nobody has the turn; else before the next one, never in the middle of one."""
    turns, seen = Turns(), []

    def see_to(number: int, on_idle: Callable[[], None]) -> None:
        seen.append(number)

    turns.end(1, do_nothing, see_to)
    assert seen == [1]
    with turns.turn(see_to):
        thread = threading.Thread(target=turns.end, args=(2, do_nothing, see_to))
        thread.start()
        thread.join()
        turns.end(3, do_nothing, see_to)  # as the garbage collector may, in this very thread
        assert seen == [1]
    with turns.turn(see_to):
        assert seen == [1, 2, 3]


def test_who_cannot_have_the_turn_does_not_wait() -> None:
    """`turn_if_free` says whether it is ours."""
    turns = Turns()
    with turns.turn_if_free() as ours, turns.turn_if_free() as theirs:
        assert (ours, theirs) == (True, False)
    with turns.turn_if_free() as again:
        assert again
