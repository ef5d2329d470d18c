# SPDX-License-Identifier: Apache-2.0
"""Worker pools over a fixture, with the memory that a loader gives them, but without a loader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from robostream.batches import WorkerBudgets
from robostream.decode import COUNTERS
from robostream.device import create_memory, format_batch, map_memory, pack
from robostream.loader import StreamingLeRobotDataset
from robostream.plan import Cut, Schedule, WorkerShard
from robostream.workers import (
    Failed,
    InProcessPool,
    Worker,
    WorkerConfig,
    WorkerPool,
)
from tests.loader.streams import blind_stream

BUDGETS = WorkerBudgets(
    frame_bytes=1 << 20, row_bytes=1 << 20, max_files=4, max_decodings=4, runs_ahead=True
)
FRAMES = list(range(62))


class Consumer:
    """What a loader does with a pool, step by step.

    Args:
        stream: What to deliver.
        num_workers: Worker processes; 0 builds in this process.
        batch_size: Samples of a batch.
        num_slots: Batches that there is memory for.
        config: What workers get instead of their configuration.
    """

    def __init__(
        self,
        stream: StreamingLeRobotDataset,
        num_workers: int,
        *,
        batch_size: int,
        num_slots: int,
        config: object,
    ) -> None:
        layout = stream._cursor.layout
        self.batch_format = format_batch(layout.arrays, batch_size)
        self.schedule = Schedule(stream.plan(0), Cut(0, 1, batch_size, drop_last=False), 0)
        self.num_slots = num_slots
        cameras = len(layout.cameras)
        right = WorkerConfig(layout, self.batch_format, BUDGETS)
        fds = [
            pack(right if config is None else config),
            create_memory(self.batch_format.slot_bytes * num_slots),
            create_memory(max(1, num_workers) * len(COUNTERS) * 8),
        ]
        self.memory = map_memory(fds[1])
        self.counters = map_memory(fds[2]).view(np.float64).reshape(-1, len(COUNTERS))
        self.pool: WorkerPool | InProcessPool
        try:
            if num_workers:
                shards = [WorkerShard(n, num_workers, cameras) for n in range(num_workers)]
                self.pool = WorkerPool(shards, fds)
            else:
                self.pool = InProcessPool(
                    Worker(
                        right,
                        WorkerShard(0, 1, cameras),
                        batches=self.memory,
                        counters=self.counters[0],
                        frames=None,
                    )
                )
        finally:
            for fd in fds:
                os.close(fd)

    def begin(self, timeout_s: float = 0) -> int:
        """Begin an iterator over the epoch; return its number."""
        return self.pool.begin(self.schedule, timeout_s)

    def take(self, number: int, step: int, slot: int) -> dict[str, Any]:
        """Wait for a batch; return copies of its arrays, which lie in a slot, and its texts."""
        texts = self.pool.wait(number, step)
        assert not isinstance(texts, Failed), texts
        size = len(self.schedule.positions(step))
        arrays = self.batch_format.view(self.memory, slot, size)
        return {key: array.copy() for key, array in arrays.items()} | texts

    def epoch(self, number: int) -> list[dict[str, Any]]:
        """Deliver a whole epoch; assign one batch at a time beyond those that slots hold."""
        steps = self.schedule.num_steps
        first = min(steps, self.num_slots)
        self.pool.assign(number, tuple(range(first)))
        batches = []
        for step in range(steps):
            batches.append(self.take(number, step, step % self.num_slots))
            if step + first < steps:
                self.pool.assign(number, (step % self.num_slots,))
        return batches


@contextmanager
def open_pool(
    num_workers: int,
    stream: StreamingLeRobotDataset | None = None,
    *,
    batch_size: int = 4,
    num_slots: int = 16,
    config: object = None,
) -> Iterator[Consumer]:
    """Yield a consumer with a running pool, and close the pool."""
    consumer = Consumer(
        stream or blind_stream(),
        num_workers,
        batch_size=batch_size,
        num_slots=num_slots,
        config=config,
    )
    try:
        yield consumer
    finally:
        consumer.pool.close()


def indices(batches: list[dict[str, Any]]) -> list[int]:
    """Return the dataset-wide frame indices of batches."""
    return [index for batch in batches for index in batch["index"].tolist()]
