# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from robostream.loader.ordered import map_ordered


def test_groups_come_in_order_whatever_finishes_first() -> None:
    """Items are worked on by all threads at once; results keep their places."""

    def late_first(item: int) -> int:
        time.sleep(0.02 if item % 3 == 0 else 0.0)
        return item * item

    groups = [[0, 1, 2], [3], [4, 5], [], [6, 7, 8]]
    results = list(map_ordered(late_first, groups, threads=3, depth=2))

    assert results == [[item * item for item in group] for group in groups]


def test_no_more_than_depth_groups_are_taken() -> None:
    """What is ahead of the consumer is bounded."""
    taken: list[int] = []

    def source() -> Iterator[list[int]]:
        for number in range(100):
            taken.append(number)
            yield [number]

    results = map_ordered(lambda item: item, source(), threads=2, depth=3)
    for number in range(5):
        assert next(results) == [number]
        assert len(taken) <= number + 4
    results.close()  # type: ignore[attr-defined]


def test_an_error_comes_at_its_group_and_no_thread_stays() -> None:
    """Groups before it are delivered, the first error of its group is raised, all threads end."""

    def fail(item: int) -> int:
        if item >= 3:
            raise ValueError(f"item {item}")
        return item

    results = map_ordered(fail, [[0, 1], [2, 3, 4], [5]], threads=2, depth=3)

    assert next(results) == [0, 1]
    with pytest.raises(ValueError, match="item 3"):
        next(results)
    assert not [t for t in threading.enumerate() if t.name.startswith("robostream")]
