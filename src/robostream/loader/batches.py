# SPDX-License-Identifier: Apache-2.0
"""Whole batches in order, built where the DataLoader runs the dataset: here or in its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset

from robostream.loader.delivery import Share, deliver
from robostream.loader.options import worker_place
from robostream.loader.streaming import StreamingLeRobotDataset
from robostream.plan import Cut, steps_left, walk, worker_steps

Payload = tuple[dict[str, Any], dict[int, str]]


class BatchStream(IterableDataset[Payload]):
    """Yields (batch, episodes set aside so far): batch k of a rank is built by worker k mod N."""

    def __init__(self, dataset: StreamingLeRobotDataset, cut: Cut, *, depth: int) -> None:
        self.dataset = dataset
        self.cut = cut
        self.depth = depth

    def __iter__(self) -> Iterator[Payload]:
        worker, num_workers = worker_place()
        begin = self.dataset.epochs.begin(worker)
        plan = self.dataset.plan(begin.epoch)
        shop = self.dataset.workshops.open(self.cut.batch_size, self.depth)
        left = steps_left(self.cut, plan.num_frames, begin.position)
        steps = worker_steps(left, worker, num_workers)
        share = Share(plan, self.cut, begin.position, worker, num_workers)
        batches = walk(plan, self.cut, begin.position, steps)
        for _, writer in deliver(batches, share, shop, depth=self.depth):
            yield writer.result(), shop.quarantine.reasons()
