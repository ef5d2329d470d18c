# SPDX-License-Identifier: Apache-2.0
"""A function runs in child processes, and its results, messages and errors come back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robostream.errors import WriteError
from robostream.tools.child_processes import run_in_children


def square(number: int, send: Callable[[Any], object]) -> tuple[int, int]:
    """Send the number, sleep longer for the first jobs, and return its square and the process."""
    send(number)
    time.sleep(0.2 if number == 0 else 0)
    return number**2, os.getpid()


def fail(number: int, _: object) -> None:
    raise ValueError(f"no {number}")


def die(*_: object) -> None:
    os._exit(3)


def test_results_come_in_order() -> None:
    """A slow first job delays no other job, and all messages arrive."""
    messages: list[int] = []
    found = list(
        run_in_children(
            square, range(8), processes=2, per_child=1, ahead=8, on_message=messages.append
        )
    )

    assert [value for value, _ in found] == [number**2 for number in range(8)]
    assert sorted(messages) == list(range(8))
    assert len({process for _, process in found} | {os.getpid()}) == 3


def test_no_more_jobs_start_than_allowed() -> None:
    """Jobs are taken one by one as results are, `ahead` before the first of them."""
    taken: list[int] = []

    def jobs() -> Any:
        for number in range(20):
            taken.append(number)
            yield number

    results = run_in_children(square, jobs(), processes=2, per_child=2, ahead=4)
    next(results)

    assert len(taken) == 4
    results.close()  # type: ignore[attr-defined]


def test_closing_kills_the_children() -> None:
    """No child outlives the iterator."""
    results = run_in_children(square, range(9), processes=2, per_child=2, ahead=4)
    _, child = next(results)
    results.close()  # type: ignore[attr-defined]

    assert not Path(f"/proc/{child}").exists()


def test_an_exception_is_raised_as_it_is() -> None:
    """The child's traceback is its cause."""
    with pytest.raises(ValueError, match="no 7") as caught:
        list(run_in_children(fail, [7], processes=1, per_child=1, ahead=1))

    assert "in fail" in str(caught.value.__cause__)


def test_a_child_that_dies_is_an_error() -> None:
    """It does not hang."""
    with pytest.raises(WriteError, match="process died"):
        list(run_in_children(die, [1, 2], processes=2, per_child=1, ahead=2))
