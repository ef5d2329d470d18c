# SPDX-License-Identifier: Apache-2.0
"""A loader's team: who builds its batches, in which memory, and how they become tensors."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from robostream import config
from robostream.assemble import SampleLayout
from robostream.device import (
    COPIES_IN_FLIGHT,
    BatchSlots,
    DeviceBatches,
    Finish,
    choose_finish,
    format_batch,
    map_memory,
    open_device_batches,
    pack,
)
from robostream.loader.budgets import FrameBudget
from robostream.loader.by_value import cannot_be_sent
from robostream.loader.worker_setup import WorkerSetup
from robostream.workers import (
    InProcessPool,
    WorkerConfig,
    WorkerIdentity,
    WorkerLoop,
    WorkerPool,
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a loader wants of its team.

    Attributes:
        batch_size: Samples per batch.
        num_workers: Worker processes; 0 for none.
        depth: How many batches are built ahead.
        device: Where batches are delivered; None for as they are built.
        parcels: The cameras whose pictures travel to it as 4:2:0.
        decodes_there: Whether the device decodes, too.
        pin_memory: Whether batches are copied to page-locked memory.
    """

    batch_size: int
    num_workers: int
    depth: int
    device: torch.device | None
    parcels: Collection[str]
    decodes_there: bool
    pin_memory: bool

    @property
    def num_slots(self) -> int:
        """How many batches there is room for."""
        # A slot in RAM takes memory once it is written to; on a GPU it takes it at once.
        iterators = 2 if self.decodes_there else config.LIVE_ITERATORS
        if self.device is None:
            return iterators * self.depth + config.HELD_BATCHES
        # The consumer holds none. One for each iterator is on the way to the device.
        return iterators * (self.depth + 1) + COPIES_IN_FLIGHT


class RunningPool(NamedTuple):
    """Who builds batches, where, and what is done with them before they are delivered.

    `frames` is the memory for decoded pictures that was chosen when the team was gathered.
    """

    crew: WorkerPool | InProcessPool
    slots: BatchSlots
    finish: Finish
    frames: FrameBudget


def start_pool(
    order: Order,
    outfit: WorkerSetup,
    counters: npt.NDArray[np.float64],
    *,
    board: int,
    kept: int | None,
) -> RunningPool:
    """Return a team at work.

    Args:
        order: What the loader wants.
        outfit: What each worker is given.
        counters: A row of counters for each worker.
        board: The descriptor of their memory.
        kept: The descriptor of the decoded pictures that all workers share, if they do.
    """
    layout, on_device = outfit.layout.in_yuv(order.parcels), None
    if order.decodes_there:
        on_device = _room_on_device(order, layout)
    taken = on_device.keys if on_device else ()
    arrays = {key: kind for key, kind in layout.arrays.items() if key not in taken}
    batches = format_batch(arrays, order.batch_size)
    slots = BatchSlots(batches, order.num_slots, config.HELD_BATCHES)
    finish = choose_finish(
        order.device, layout.cameras, slots, on_device, pin_memory=order.pin_memory
    )
    shared = on_device.share() if on_device and order.num_workers else None
    recipe = WorkerConfig(layout, batches, outfit.budgets, outfit.shared, shared)
    if order.num_workers == 0:
        station = WorkerLoop(
            recipe,
            WorkerIdentity(0, 1),
            batches=slots.memory,
            counters=counters[0],
            kept=None if kept is None else map_memory(kept),
            on_device=on_device,
        )
        return RunningPool(InProcessPool(station), slots, finish, outfit.frames)
    packed = _pack(recipe)
    try:
        fds = [packed, slots.fd, board]
        crew = WorkerPool(order.num_workers, fds if kept is None else [*fds, kept])
    finally:
        os.close(packed)
    return RunningPool(crew, slots, finish, outfit.frames)


def _room_on_device(order: Order, layout: SampleLayout) -> DeviceBatches:
    parcels = {c.key: layout.arrays[c.key] for c in layout.cameras if c.is_yuv}
    return open_device_batches(parcels, order.batch_size, order.num_slots, str(order.device))


def _pack(recipe: WorkerConfig) -> int:
    try:
        return pack(recipe)
    except Exception as error:  # a user's object may do anything here
        transforms = recipe.layout.spec.image_transforms
        if transforms is None:
            raise
        raise cannot_be_sent(transforms, error) from error
