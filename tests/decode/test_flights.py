# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from robostream.decode.flights import Flights


def test_one_does_the_work_while_others_wait() -> None:
    """Of many at once one is told to work; the others come back after it is done."""
    flights = Flights()
    done = threading.Event()
    barrier = threading.Barrier(6)
    waited: list[bool] = []

    def fly() -> None:
        barrier.wait()
        with flights.board("key") as is_mine:
            if is_mine:
                # The others are on their way in; whoever waits must see this set.
                threading.Event().wait(0.05)
                done.set()
            else:
                waited.append(done.is_set())

    threads = [threading.Thread(target=fly) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(waited)
    assert done.is_set()


def test_a_failure_lets_the_next_one_try() -> None:
    """If the work fails, the error goes to who did it and the key is free again."""
    flights = Flights()

    def fail() -> None:
        with flights.board("key"):
            raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        fail()
    with flights.board("key") as is_mine:
        assert is_mine


def test_different_work_goes_on_at_once() -> None:
    """Keys do not wait for each other."""
    flights = Flights()
    with flights.board("a") as first, flights.board("b") as second:
        assert first
        assert second
