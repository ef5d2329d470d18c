# SPDX-License-Identifier: Apache-2.0
"""`StreamingDataLoader`: a torch DataLoader that knows its position."""

from __future__ import annotations

import copy
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import torch
from torch.utils.data import DataLoader, get_worker_info

from robostream import arguments, config
from robostream.errors import SelectionError
from robostream.loader.batch_iterator import BatchIterator, NextEpoch
from robostream.loader.cursor import StreamCursor
from robostream.loader.position import Position
from robostream.loader.resources import FrameBudget
from robostream.loader.running_pool import RunningPool, choose_options, start_pool
from robostream.loader.stats import LoaderStats
from robostream.loader.stream import FrameStream, cursor_of
from robostream.meta import forward
from robostream.plan import (
    Cursor,
    Cut,
    Schedule,
    advance,
    counts_batches,
    cursor_from_batches,
    dropped_frames,
    steps_left,
)
from robostream.workers import park_at_shutdown

logger = logging.getLogger(__name__)

# Attributes that workers are started with. Torch itself guards batch_size, drop_last and dataset.
_FIXED = ("num_workers", "prefetch_factor", "pin_memory", "collate_fn")


class StreamingDataLoader(DataLoader[Any]):
    """Delivers the batches of a StreamingLeRobotDataset in the one order, resumable at any batch.

    `num_workers` processes decode, each with one thread, and write their parts of every batch
    straight into memory that this process shares. They start with the first iterator and stay.

    docs/loading.md has the rules of `iter`, leaving early, `state_dict`, `load_state_dict` and
    `set_epoch`.

    Args:
        dataset: The stream.
        batch_size: Samples per batch of this rank.
        num_workers: Worker processes; None for this rank's share of the cores, at most 8 if a GPU
            decodes; 0 to build batches in this process when they are asked for.
        drop_last: Whether to drop the frames at the end that do not fill a global batch; otherwise
            the last batches are shorter, and completed so that all ranks deliver equally many.
        pin_memory: Copy batches to page-locked memory.
        device: "cuda" or "cuda:0" for batches on that GPU, copied while it computes; frames travel
            as packed YUV 4:2:0 and become RGB there. "cpu" does the same without a GPU, for tests.
        prefetch_factor: Batches built ahead, by all workers together.
        timeout: Seconds to wait for a batch; 0 waits without limit.
        progress: Show a progress bar on rank 0, or plain lines without a terminal.
        persistent_workers: Ignored: workers always stay over epochs.
        multiprocessing_context: Ignored: workers are fresh interpreters.
    """

    dataset: FrameStream
    stream: Final[FrameStream] = forward("dataset", "The dataset it delivers.")

    # So `accelerator.prepare` leaves this loader alone. Otherwise it would give each process a part
    # of what is already that process's part, without a warning.
    _is_accelerate_prepared = True
    _is_made = False

    def __init__(
        self,
        dataset: FrameStream,
        batch_size: int = 1,
        *,
        num_workers: int | None = None,
        drop_last: bool = False,
        pin_memory: bool = False,
        device: str | torch.device | None = None,
        prefetch_factor: int | None = None,
        timeout: float = 0,
        progress: bool = False,
        persistent_workers: bool | None = None,
        multiprocessing_context: Any = None,
    ) -> None:
        self._cut = _cut(dataset, batch_size, drop_last)
        batch_size, drop_last = self._cut.batch_size, self._cut.drop_last
        if multiprocessing_context is not None:
            text = "multiprocessing_context is ignored: workers are always fresh interpreters"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        del persistent_workers  # workers stay, whether it is true or false
        timeout = min(arguments.number(timeout, "timeout", or_zero=True), config.MOST_TIMEOUT_S)
        super().__init__(
            dataset, batch_size, drop_last=drop_last, timeout=timeout, collate_fn=_refuse_samples
        )
        # The layout tries the user's transform, so an unusable one raises here.
        self._options = choose_options(
            self._source.layout,
            self._cut,
            num_samples=len(dataset),
            decode_device=dataset.video_decode_device,
            device=device,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
        )
        self.pin_memory: bool = self._options.pin_memory
        self.num_workers: int = self._options.num_workers
        # None where nothing is built ahead, as in torch.
        self.prefetch_factor: int | None = self._options.depth if self.num_workers else None
        self._progress = arguments.truth(progress, "progress") and self.stream.rank == 0
        self._position = Position()
        # A position that was set on the stream and used since then is not for a new loader.
        theirs = self._source.position
        self._adopted = theirs.version if theirs.is_used else 0
        self._running: RunningPool | None = None
        self._reset()
        self._has_warned_of_dropped = False
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and self._is_made:
            raise SelectionError(
                f"{name} of a StreamingDataLoader cannot be set after the loader is made. Make "
                "another loader; it continues from loader.state_dict()."
            )
        super().__setattr__(name, value)

    @property
    def _source(self) -> StreamCursor:
        return cursor_of(self.stream)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return steps_left(self._cut, self.stream.num_frames, 0)

    def __repr__(self) -> str:
        cursor = self._position.cursor
        return (
            f"StreamingDataLoader({self.stream.repo_id!r}, batch_size={self._cut.batch_size}, "
            f"batches={len(self)}, num_workers={self.num_workers}, epoch={cursor.epoch}, "
            f"position={cursor.position} of {self.stream.num_frames})"
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        """Return an iterator over the epoch, from the consumer's position."""
        if get_worker_info() is not None:
            raise SelectionError(
                "a worker process of torch's DataLoader iterates over a StreamingDataLoader, and "
                "each worker would deliver all of its batches. Iterate over it in the training "
                "process: it has worker processes of its own."
            )
        self._adopt_position()
        position, source = self._position, self._source
        start, versions = position.next_start(), (position.version, self._adopted)
        self._warn_of_dropped(start)
        schedule = Schedule(source.current_plan(start.epoch), self._cut, start.position)
        queue = self._next_epoch.open(schedule, self._open(), self.timeout)
        progress = self._stats.open_progress(
            f"epoch {start.epoch}", schedule.num_samples, is_shown=self._progress
        )
        self._stats.begin()
        return BatchIterator(
            queue, self._next_epoch, source, position, versions, self._stats, progress
        )

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands after the batches delivered so far.

        Plain JSON values, the same on every rank; a run with any world size, batch size and number
        of workers can continue from it. It holds the order's receipt and the quarantined episodes.
        """
        self._adopt_position()
        cursor, source = self._position.cursor, self._source
        return source.capture(source.current_plan(cursor.epoch), cursor.position)

    def load_state_dict(self, state: Mapping[str, Any], *, skip_epoch: bool = False) -> None:
        """Make the next iterator continue where a state stands.

        Also takes {"batches_consumed", "batch_size"}: the batches each rank of this world size has
        taken since epoch 0. With `skip_epoch`, changed weights of a mixture may begin in the middle
        of an epoch, and the rest of it is dropped.
        """
        if counts_batches(state):
            cursor = cursor_from_batches(state, self._cut, self.stream.num_frames)
        else:
            cursor = self._source.restore(state, skip_epoch=skip_epoch)
        self._adopted = self._source.position.version
        self._position.stage(cursor)
        self._next_epoch.keep_for(cursor)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin `epoch`, unless a loaded state for it is still unused."""
        self._adopt_position()
        self._position.set_epoch(arguments.whole_number(epoch, "epoch", least=0))
        self._next_epoch.keep_for(self._position.next_start())

    def stats(self) -> dict[str, float]:
        """Return a flat dict of counters and rates, ready for a logger."""
        return self._stats.stats()

    def limited_by(self) -> str:
        """Return what limits the running epoch, or the last one, and what would help: one line."""
        return self._stats.limited_by()

    def close(self) -> None:
        """End the workers; the next iterator starts new ones."""
        running, self._running = self._running, None
        if running is not None:
            running.pool.close()
        self._next_epoch.drop()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_running": None, "_starting": None, "_next_epoch": None}
        return self.__dict__ | own | {"_position": copy.copy(self._position)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy stands where the loader did, and has workers, memory and counts of its own.
        self.__dict__.update(state)
        self._reset()

    def _reset(self) -> None:
        # By process: in a fork, the lock of its parent may be held for ever.
        self._starting: dict[int, threading.Lock] = {}
        self._next_epoch = NextEpoch()
        images_per_sample = self._source.layout.images_per_sample
        self._stats = LoaderStats(max(self.num_workers, 1), images_per_sample)

    def _adopt_position(self) -> None:
        """Take over a position that was set on the stream since the last look at it."""
        theirs = self._source.position
        if theirs.version == self._adopted:
            return
        self._adopted = theirs.version
        if theirs.batches_taken is None:
            self._position.stage(theirs.staged)
        else:
            batches, batch_size = theirs.batches_taken
            state = {"batches_consumed": batches, "batch_size": batch_size}
            self._position.stage(cursor_from_batches(state, self._cut, self.stream.num_frames))

    def _open(self) -> RunningPool:
        """Return the workers and the memory they write to, new where they are missing.

        Both together: an interrupt, or another thread, must not leave workers that write to one
        memory and a consumer that reads another.
        """
        try:
            with self._starting.setdefault(os.getpid(), threading.Lock()):
                if self._running is None or not self._running.pool.is_usable:
                    self.close()
                    self._running = start_pool(self._source, self._options, self._stats)
                return self._running
        except BaseException:
            park_at_shutdown()
            raise

    def _warn_of_dropped(self, start: Cursor) -> None:
        dropped = dropped_frames(self._cut, self.stream.num_frames, start.position)
        if dropped and not self._has_warned_of_dropped:
            logger.warning(
                "drop_last=True: the last %d of %d frames of each epoch do not fill a global batch "
                "of %d and are not delivered; with drop_last=False they are",
                dropped,
                self.stream.num_frames,
                self._cut.step_size,
            )
            self._has_warned_of_dropped = True


def _cut(dataset: object, batch_size: int, drop_last: bool) -> Cut:
    """Return the rank's share of each epoch; raise SelectionError if that would be nothing."""
    if not isinstance(dataset, FrameStream):
        raise SelectionError(
            "want a StreamingLeRobotDataset or a MixtureDataset, got "
            f"{type(dataset).__name__}; a map-style dataset goes with torch's DataLoader and "
            "EpisodeAwareSampler"
        )
    cut = Cut(
        dataset.rank,
        dataset.world_size,
        arguments.whole_number(batch_size, "batch_size", 1, config.MOST_BATCH_SIZE),
        arguments.truth(drop_last, "drop_last"),
    )
    advance(cut, dataset.num_frames, Cursor(0, 0), 0)  # raises if no batch is full
    return cut


def _refuse_samples(samples: object) -> NoReturn:
    """Raise SelectionError: the `collate_fn` of a StreamingDataLoader, which collates nothing.

    It runs if a program makes a plain DataLoader from a StreamingDataLoader's attributes, as
    `accelerate.skip_first_batches` does. The batches would be different ones.
    """
    raise SelectionError(
        "accelerate.skip_first_batches(), or another program, made a plain DataLoader from a "
        "StreamingDataLoader. It would deliver other batches, and it has no state. Call "
        'loader.load_state_dict({"batches_consumed": n, "batch_size": b}), or load a saved state, '
        "and iterate over the loader itself. With transformers.Trainer, set ignore_data_skip=True."
    )


def frame_budget(loader: StreamingDataLoader) -> FrameBudget:
    """Return the memory for decoded frames of this rank, and why it is that much.

    Starts the workers if they are not running: "auto" depends on the memory that is free then.
    """
    return loader._open().frames


def batch_bytes(loader: StreamingDataLoader) -> int:
    """Return the bytes of one batch's arrays, as workers build it."""
    return loader._options.batch_bytes
