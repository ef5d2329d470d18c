# SPDX-License-Identifier: Apache-2.0
"""A loader's running pool: who builds its batches, in which memory, and how they become tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from robostream import config
from robostream.assemble import SampleLayout
from robostream.decode import COUNTERS, summarise
from robostream.device import (
    COPIES_IN_FLIGHT,
    BatchSlots,
    HostTransfer,
    UploadThread,
    choose_transfer,
    create_memory,
    format_batch,
    map_memory,
    open_device_batches,
    pack,
)
from robostream.loader.options import cannot_be_sent
from robostream.loader.resources import FrameBudget, Resources
from robostream.workers import (
    InProcessPool,
    Worker,
    WorkerConfig,
    WorkerIdentity,
    WorkerPool,
    signals_held,
)


class Counters:
    """The decoder's counters of a loader, a row for each worker, in memory that workers share."""

    def __init__(self, num_workers: int) -> None:
        self.rows = np.zeros((num_workers, len(COUNTERS)))

    def share(self) -> int:
        """Move the counters to new shared memory; return its descriptor."""
        before = self.rows
        fd = create_memory(before.nbytes)
        self.rows = map_memory(fd)[: before.nbytes].view(np.float64).reshape(before.shape)
        self.rows[:] = before
        return fd

    def summary(self) -> dict[str, float]:
        """Return the counters of all workers together."""
        return summarise(self.rows.sum(axis=0))


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What a loader asks of its pool.

    Attributes:
        batch_size: Samples per batch.
        num_workers: Worker processes; 0 to build batches in this process.
        depth: How many batches are built ahead.
        device: Where batches are delivered; None for the memory they are built in.
        yuv_cameras: The cameras whose frames travel to it as packed YUV 4:2:0.
        gpu_decodes: Whether the device decodes, too.
        pin_memory: Whether batches are copied to page-locked memory.
    """

    batch_size: int
    num_workers: int
    depth: int
    device: torch.device | None
    yuv_cameras: Collection[str]
    gpu_decodes: bool
    pin_memory: bool

    @property
    def num_slots(self) -> int:
        """How many batches there is room for."""
        # A slot in RAM takes memory once it is written to; on a GPU it takes it at once.
        iterators = 2 if self.gpu_decodes else config.LIVE_ITERATORS
        if self.device is None:
            return iterators * self.depth + config.HELD_BATCHES
        # The consumer holds none. One for each iterator is on the way to the device.
        return iterators * (self.depth + 1) + COPIES_IN_FLIGHT


class RunningPool(NamedTuple):
    """The pool that builds batches, their slots, and what makes tensors of them.

    `frames` is the memory for decoded frames that was chosen when the pool started.
    """

    pool: WorkerPool | InProcessPool
    slots: BatchSlots
    transfer: HostTransfer | UploadThread
    frames: FrameBudget


def start_pool(
    options: PoolOptions,
    layout: SampleLayout,
    resources: Resources,
    counters: Counters,
    open_frames: Callable[[], int] | None,
) -> RunningPool:
    """Return a running pool.

    `open_frames` returns the descriptor of the decoded frames that all workers share; it is None if
    each worker has its own.
    """
    # An interrupt would leave processes and memory that nobody ends.
    with signals_held():
        fds = [counters.share()]
        try:
            if open_frames is not None:
                fds.append(open_frames())
            return _start(options, layout.in_yuv(options.yuv_cameras), resources, counters, fds)
        finally:
            for fd in fds:
                os.close(fd)


def _start(
    options: PoolOptions,
    layout: SampleLayout,
    resources: Resources,
    counters: Counters,
    fds: list[int],
) -> RunningPool:
    on_device = None
    if options.gpu_decodes:
        yuv = {c.key: layout.arrays[c.key] for c in layout.cameras if c.is_yuv}
        device = str(options.device)
        on_device = open_device_batches(yuv, options.batch_size, options.num_slots, device)
    elsewhere = on_device.keys if on_device else ()
    arrays = {key: array for key, array in layout.arrays.items() if key not in elsewhere}
    batches = format_batch(arrays, options.batch_size)
    slots = BatchSlots(batches, options.num_slots, config.HELD_BATCHES)
    transfer = choose_transfer(
        options.device, layout.cameras, slots, on_device, pin_memory=options.pin_memory
    )
    shared = on_device.share() if on_device and options.num_workers else None
    worker_config = WorkerConfig(layout, batches, resources.budgets, resources.shared, shared)
    if options.num_workers:
        packed = _pack(worker_config)
        try:
            pool: WorkerPool | InProcessPool = WorkerPool(
                options.num_workers, [packed, slots.fd, *fds]
            )
        finally:
            os.close(packed)
    else:
        worker = Worker(
            worker_config,
            WorkerIdentity(0, 1),
            batches=slots.memory,
            counters=counters.rows[0],
            frames=map_memory(fds[1]) if len(fds) > 1 else None,
            on_device=on_device,
        )
        pool = InProcessPool(worker)
    return RunningPool(pool, slots, transfer, resources.frames)


def _pack(worker_config: WorkerConfig) -> int:
    try:
        return pack(worker_config)
    except Exception as error:  # a user's object may raise anything here
        transforms = worker_config.layout.spec.image_transforms
        if transforms is None:
            raise
        raise cannot_be_sent(transforms, error) from error
