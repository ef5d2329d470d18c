# SPDX-License-Identifier: Apache-2.0
"""Which epoch an iterator is on, agreed between the main process and its workers.

A DataLoader may keep its workers over epochs or start new ones from copies of the dataset, and a
plain one does not tell the dataset which epoch it begins. So the count lives in shared memory: each
worker counts the iterators it has begun in a slot of its own, whichever process holds that number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from robostream.errors import SelectionError

MAX_WORKERS = 1024
# Cells: the epoch of the first iterator; where it begins; batches to skip in it; then the slots.
_EPOCH, _POSITION, _BATCHES, _BATCH_SIZE, _SLOTS = range(5)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where an iterator starts: in `epoch` at `position`, after skipping `batches`.

    `lap` counts the iterators before it since the start was set; `position` and the skipped batches
    are those of the first, lap 0.
    """

    epoch: int
    position: int
    batches: int
    batch_size: int
    lap: int


class EpochCounter:
    """The epoch of the next iterator, in memory that forked and spawned workers share."""

    def __init__(self) -> None:
        self._cells = torch.zeros(_SLOTS + MAX_WORKERS, dtype=torch.int64)
        self._cells.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def set(self, epoch: int, position: int = 0) -> None:
        """Make every worker's next iterator begin `epoch` at `position`."""
        self._cells.zero_()
        self._cells[_EPOCH] = epoch
        self._cells[_POSITION] = position

    def skip_batches(self, batches: int, batch_size: int) -> None:
        """Make the next iterators leave out what `batches` batches of a plain DataLoader held."""
        self._cells.zero_()
        self._cells[_BATCHES] = batches
        self._cells[_BATCH_SIZE] = batch_size

    def rebase(self, epoch: int, lap: int) -> None:
        """Make lap `lap` the epoch `epoch`; every worker that loads a state says the same."""
        self._cells[_EPOCH] = epoch - lap

    def started(self) -> bool:
        """Return whether any process has begun an iterator since the last `set`."""
        return bool(self._cells[_SLOTS:].any())

    def peek(self) -> tuple[int, int]:
        """Return the epoch and position given to the last `set`."""
        return int(self._cells[_EPOCH]), int(self._cells[_POSITION])

    def begin(self, worker: int) -> Beginning:
        """Return where the iterator a worker begins now is to start, and count it."""
        if worker >= MAX_WORKERS:
            raise SelectionError(f"at most {MAX_WORKERS} workers are supported, got {worker + 1}")
        slot = _SLOTS + worker
        lap = int(self._cells[slot])
        self._cells[slot] += 1
        first, position, batches, batch_size = (int(cell) for cell in self._cells[:_SLOTS])
        return Beginning(first + lap, 0 if lap else position, batches, batch_size, lap)


@dataclass(frozen=True, slots=True)
class PlainProgress:
    """How far a plain DataLoader has come, seen from one of its workers.

    Attributes:
        epochs: Whole epochs that have passed.
        role: Whose share this worker goes on with: a new DataLoader asks its first worker first,
            wherever the old one had stopped.
        samples: What has been taken from that share in the current epoch.
    """

    epochs: int
    role: int
    samples: int


def plain_loader_progress(
    batches: int, batch_size: int, *, samples: int, worker: int, num_workers: int
) -> PlainProgress:
    """Return where a worker goes on after a plain DataLoader has taken `batches`. Pure.

    A plain DataLoader takes one batch from each worker in turn; a worker holds every
    num_workers-th of the rank's `samples` and makes a short batch of what is left at its end.
    """
    if batches == 0:
        return PlainProgress(0, worker, 0)
    shares = [-(-(samples - n) // num_workers) for n in range(num_workers)]
    epochs, left = divmod(batches, sum(-(-share // batch_size) for share in shares))
    role = (worker + left) % num_workers
    taken = left // num_workers + (left % num_workers > role)
    return PlainProgress(epochs, role, min(taken * batch_size, shares[role]))
