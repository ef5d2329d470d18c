# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from robostream.decode.flights import Flights
from tests.threads import at_once


def test_of_many_at_once_one_gets_the_work() -> None:
    """One is told to work; the others get what is set once it is done."""
    flights = Flights()
    landings = at_once(6, lambda _: flights.claim("key"))

    others = [landing for landing in landings if landing is not None]
    assert len(others) == 5
    assert not any(landing.is_set() for landing in others)
    flights.land("key")
    assert all(landing.is_set() for landing in others)


def test_work_that_is_done_can_be_claimed_again() -> None:
    """Whether it went well or not: who claims it next finds out."""
    flights = Flights()
    assert flights.claim("key") is None
    flights.land("key")

    assert flights.claim("key") is None


def test_different_work_goes_on_at_once() -> None:
    """Keys do not wait for each other."""
    flights = Flights()

    assert flights.claim("a") is None
    assert flights.claim("b") is None
