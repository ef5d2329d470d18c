# SPDX-License-Identifier: Apache-2.0
"""What a process keeps open from epoch to epoch: files, decoders, frames and memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from robostream import config
from robostream.assemble import Episode, RowReader, SampleSpec, load_episode
from robostream.decode import NEVER, DecodeStatistics, FrameEngine, NextUses
from robostream.fetch import open_source
from robostream.loader.buffers import BufferPool
from robostream.loader.quarantine import Quarantine
from robostream.loader.uses import Ints
from robostream.meta import LeRobotDatasetMetadata


@dataclass(frozen=True, slots=True)
class WorkshopSettings:
    """Budgets of one process."""

    threads: int
    frame_cache_bytes: int
    video_decoder_cache_size: int
    samples_in_flight: int


class Foresight:
    """Tells the frame engine the future of the run that is being delivered.

    The engine's clock only moves forward, while runs begin anywhere: at the start of an epoch, or
    where a state stood. So each run's times are counted from where the clock stood at its start.
    """

    def __init__(self) -> None:
        self._uses: NextUses | None = None
        self._origin = 0
        self._latest = 0

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
        self._latest = max(self._latest, time)
        return time

    def __call__(self, file: str, frames: Ints, after: int) -> Ints:
        """Return the uses of frames later than `after`, a row each; the engine's clock."""
        uses = self._uses
        if uses is None:
            return np.full((len(frames), 1), NEVER)
        found = uses(file, frames, after - self._origin)
        return np.where(found == NEVER, NEVER, found + self._origin)


class Workshop:
    """Opens files when they are needed, decodes, and hands out batch memory. Thread-safe."""

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        spec: SampleSpec,
        settings: WorkshopSettings,
        quarantine: Quarantine,
        statistics: DecodeStatistics,
    ) -> None:
        self.meta = meta
        self.spec = spec
        self.settings = settings
        self.quarantine = quarantine
        self.foresight = Foresight()
        self.buffers = BufferPool(config.BATCH_MEMORY_BYTES)
        self.engine = FrameEngine(
            lambda file: open_source(meta.location, file),
            store_bytes=settings.frame_cache_bytes,
            max_files=settings.video_decoder_cache_size,
            next_uses=self.foresight,
            reorder=settings.samples_in_flight,
            statistics=statistics,
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
