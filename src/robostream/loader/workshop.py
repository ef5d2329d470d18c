# SPDX-License-Identifier: Apache-2.0
"""What a process keeps open from epoch to epoch: files, decoders, frames and memory."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from robostream import config
from robostream.assemble import (
    Episode,
    RowReader,
    SampleLayout,
    SampleSpec,
    index_folder,
    load_episode,
)
from robostream.decode import NEVER, DecodeStatistics, FrameEngine, NextUses, StatisticsBoard
from robostream.fetch import open_source
from robostream.loader.buffers import BufferPool
from robostream.loader.epochs import MAX_WORKERS
from robostream.loader.options import default_threads, worker_place
from robostream.loader.quarantine import Quarantine
from robostream.loader.uses import Ints
from robostream.meta import LeRobotDatasetMetadata, decoded_bytes


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a rank may use; its worker processes share the memory and the cores.

    Attributes:
        threads: Threads per process; None for the process's share of the cores.
        frame_cache_bytes: RAM for decoded frames.
        max_files: Video files kept open per process.
    """

    threads: int | None
    frame_cache_bytes: int
    max_files: int

    def threads_of(self, num_workers: int) -> int:
        """Return how many threads each of the rank's processes has."""
        return self.threads or default_threads(num_workers)


class Foresight:
    """Tells the frame engine the future of the run that is being delivered.

    The engine's clock only moves forward, while runs begin anywhere: at the start of an epoch, or
    where a state stood. So each run's times are counted from where the clock stood at its start.
    """

    def __init__(self) -> None:
        self._uses: NextUses | None = None
        self._origin = 0
        self._latest = 0
        self._lock = threading.Lock()

    def begin(self, uses: NextUses) -> None:
        """Follow a new run, whose times count from 0."""
        self._origin = self._latest + 1
        self._uses = uses

    def end(self) -> None:
        """Forget the run: nothing is needed again."""
        self._uses = None

    def time(self, clock: int) -> int:
        """Return a time of the run on the engine's clock."""
        time = self._origin + clock
        with self._lock:
            self._latest = max(self._latest, time)
        return time

    def __call__(self, file: str, frames: Ints, after: int) -> Ints:
        """Return the uses of frames later than `after`, a row each; the engine's clock."""
        uses = self._uses
        if uses is None:
            return np.full((len(frames), 1), NEVER)
        found = uses(file, frames, after - self._origin)
        return np.where(found == NEVER, NEVER, found + self._origin)


def batches_ahead(depth: int, batch_size: int, threads: int) -> int:
    """Return how many batches are built at a time: `depth`, or a sample for each thread. Pure."""
    return max(depth, -(-threads // batch_size))


def samples_per_part(spec: SampleSpec, samples_ahead: int, threads: int) -> int:
    """Return how many samples a thread builds in one go. Pure.

    Enough for `config.PICTURES_PER_READ` pictures, so that threads seldom get into each other's
    way; fewer where that would leave threads without work.
    """
    pictures = sum(len(spec.windows.get(key, (0,))) for key in spec.cameras)
    return max(1, min(config.PICTURES_PER_READ // max(1, pictures), samples_ahead // threads))


class Workshop:
    """Opens files when they are needed, decodes, and hands out batch memory. Thread-safe.

    Args:
        meta: The dataset.
        spec: What a sample holds.
        quarantine: The episodes set aside.
        budgets: What the rank may use.
        num_frames: How many frames of the dataset are used.
        samples_in_flight: How many samples may be worked on at a time.
        board: Where counts go, by worker.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        spec: SampleSpec,
        quarantine: Quarantine,
        *,
        budgets: Budgets,
        num_frames: int,
        samples_in_flight: int,
        board: StatisticsBoard,
    ) -> None:
        worker, num_workers = worker_place()
        store_bytes = budgets.frame_cache_bytes // num_workers
        frame_bytes = sum(decoded_bytes(meta.features[key]) for key in spec.videos)
        self.process = os.getpid()
        self.meta = meta
        self.spec = spec
        self.layout = SampleLayout(meta, spec)
        self.quarantine = quarantine
        self.threads = budgets.threads_of(num_workers)
        self.samples_in_flight = samples_in_flight
        self.foresight = Foresight()
        self.buffers = BufferPool(config.BATCH_MEMORY_BYTES)
        self.engine = FrameEngine(
            lambda file: open_source(meta.location, file),
            store_bytes=store_bytes,
            max_files=budgets.max_files,
            next_uses=self.foresight,
            reorder=samples_in_flight,
            # A dataset that fits is decoded once; of a larger one next to nothing would be left.
            keep_used=num_frames * frame_bytes <= store_bytes,
            index_folder=index_folder(meta),
            statistics=DecodeStatistics(board.row(worker)),
        )
        self._reader = RowReader(meta, spec.columns)
        self._row_lock = threading.Lock()

    def load(self, episode: int) -> Episode:
        """Read an episode; one thread at a time, as Parquet readers are not thread-safe."""
        with self._row_lock:
            return load_episode(
                episode, meta=self.meta, reader=self._reader, engine=self.engine, spec=self.spec
            )

    def close(self) -> None:
        """Let go of all files, frames and memory."""
        self.engine.close()
        self._reader.close()


class WorkshopKeeper:
    """Gives each process its own workshop; copies and forks open theirs when they need one."""

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        spec: SampleSpec,
        quarantine: Quarantine,
        budgets: Budgets,
        num_frames: int,
    ) -> None:
        self._meta = meta
        self._spec = spec
        self._quarantine = quarantine
        self._budgets = budgets
        self._num_frames = num_frames
        self._board: StatisticsBoard | None = StatisticsBoard(MAX_WORKERS)
        self._shop: Workshop | None = None

    def open(self, batch_size: int, depth: int) -> Workshop:
        """Return this process's workshop, opened anew if it is too small or another process's."""
        _, num_workers = worker_place()
        threads = self._budgets.threads_of(num_workers)
        ahead = batches_ahead(depth, batch_size, threads)
        # One batch is being consumed while others are built; those between are other workers'.
        samples_in_flight = (ahead + 1) * batch_size * num_workers
        shop = self._shop
        if shop is not None and shop.process == os.getpid():
            if shop.samples_in_flight >= samples_in_flight:
                return shop
            shop.close()
        self._shop = Workshop(
            self._meta,
            self._spec,
            self._quarantine,
            budgets=self._budgets,
            num_frames=self._num_frames,
            samples_in_flight=samples_in_flight,
            board=self._statistics(),
        )
        return self._shop

    def close(self) -> None:
        """Close what this process keeps open."""
        if self._shop is not None and self._shop.process == os.getpid():
            self._shop.close()
        self._shop = None

    def stats(self) -> dict[str, float]:
        """Return the decoder's counters, summed over the processes that share this keeper."""
        return self._statistics().total()

    def __getstate__(self) -> dict[str, Any]:
        # Shared memory travels to a process being spawned, and nowhere else.
        board = self._board if get_spawning_popen() is not None else None
        return self.__dict__ | {"_shop": None, "_board": board}

    def _statistics(self) -> StatisticsBoard:
        if self._board is None:
            self._board = StatisticsBoard(MAX_WORKERS)
        return self._board
