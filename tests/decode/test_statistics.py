# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing

import pytest

from robostream.decode import COUNTERS, DecodeStatistics, StatisticsBoard
from tests.threads import at_once

ONE_READ = tuple(range(1, len(COUNTERS) + 1))


def add_many(board: StatisticsBoard, process: int) -> None:
    """Count 100 reads in one process."""
    statistics = DecodeStatistics(board.row(process))
    for _ in range(100):
        statistics.add(ONE_READ)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_add_up(method: str) -> None:
    """The board's total is the sum over processes, however they were started."""
    context = multiprocessing.get_context(method)
    board = StatisticsBoard(3)
    processes = [context.Process(target=add_many, args=(board, n)) for n in (0, 2)]
    for process in processes:
        process.start()
    add_many(board, 1)
    for process in processes:
        process.join()
    total = board.total()

    for name, amount in zip(COUNTERS, ONE_READ, strict=True):
        assert total[name] == 300 * amount


def test_threads_add_up() -> None:
    """No count is lost between threads."""
    statistics = DecodeStatistics()

    def count(_: int) -> None:
        for _ in range(2000):
            statistics.add(ONE_READ)

    at_once(4, count)

    assert statistics.summary()["images_delivered"] == 8000


def test_ratios_follow_from_the_counts() -> None:
    """Amplification is decoded per delivered; nothing counted gives 0, not an error."""
    statistics = DecodeStatistics()
    assert statistics.summary()["amplification"] == 0
    statistics.add((8, 2, 0, 0, 0, 0, 0, 0, 3, 1, 0))
    summary = statistics.summary()

    assert summary["amplification"] == 0.25
    assert summary["file_hit_rate"] == 0.75
