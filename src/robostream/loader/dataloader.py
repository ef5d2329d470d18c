# SPDX-License-Identifier: Apache-2.0
"""`StreamingDataLoader`: a torch DataLoader that knows its position."""

from __future__ import annotations

import copy
import functools
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from robostream import arguments, config
from robostream.assemble import SampleLayout, find_yuv_cameras
from robostream.byte_sizes import format_bytes
from robostream.device import choose_device, choose_gpu, count_workers, total_gpu_memory
from robostream.errors import SelectionError
from robostream.loader.batch_iterator import BatchIterator
from robostream.loader.cursor import Position, StreamCursor
from robostream.loader.frame_file import prepare_frame_memory
from robostream.loader.options import refuse_samples, warn_of_ignored
from robostream.loader.ranks import local_ranks
from robostream.loader.resources import FrameBudget, choose_depth, share_of_cores, whole_memory
from robostream.loader.running_pool import Counters, PoolOptions, RunningPool, start_pool
from robostream.loader.stats import LoaderStats
from robostream.loader.streaming import StreamingLeRobotDataset, cursor_of
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

    # So `accelerator.prepare` leaves this loader alone. Otherwise it would give each process a part
    # of what is already that process's part, without a warning.
    _is_accelerate_prepared = True
    _is_made = False

    def __init__(
        self,
        dataset: StreamingLeRobotDataset,
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
        if not isinstance(dataset, StreamingLeRobotDataset):
            raise SelectionError(
                f"want a StreamingLeRobotDataset, got {type(dataset).__name__}; a map-style "
                "dataset goes with torch's DataLoader and EpisodeAwareSampler"
            )
        batch_size = arguments.whole_number(batch_size, "batch_size", 1, config.MOST_BATCH_SIZE)
        warn_of_ignored("multiprocessing_context", multiprocessing_context)
        del persistent_workers  # workers stay, whether it is true or false
        drop_last = arguments.truth(drop_last, "drop_last")
        timeout = min(arguments.number(timeout, "timeout", or_zero=True), config.MOST_TIMEOUT_S)
        self._cut = Cut(dataset.rank, dataset.world_size, batch_size, drop_last)
        # Raises SelectionError for an epoch that would deliver nothing.
        advance(self._cut, dataset.num_frames, Cursor(0, 0), 0)
        super().__init__(
            dataset, batch_size, drop_last=drop_last, timeout=timeout, collate_fn=refuse_samples
        )
        # The layout tries the user's transform, so an unusable one raises here.
        self._texts = self._source.layout.texts
        self.pin_memory = arguments.truth(pin_memory, "pin_memory")
        self._device = choose_device(device)
        self._gpu = self._choose_gpu()
        self._check_memory()
        if num_workers is None:
            num_workers = share_of_cores(local_ranks(dataset.world_size))
            if self._gpu:
                num_workers = count_workers(num_workers, total_gpu_memory(self._gpu))
        self.num_workers = arguments.whole_number(num_workers, "num_workers", least=0)
        self._depth = self._choose_depth(prefetch_factor)
        # None where nothing is built ahead, as in torch.
        self.prefetch_factor = self._depth if self.num_workers else None
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
    def stream(self) -> StreamingLeRobotDataset:
        """The dataset it delivers."""
        stream = self.dataset
        assert isinstance(stream, StreamingLeRobotDataset)
        return stream

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
        source, version = self._source, self._adopted
        start, began_from = self._position.next_start(), self._position.staged
        self._warn_of_dropped(start)
        plan = source.current_plan(start.epoch)
        running = self._open()
        schedule = Schedule(plan, self._cut, start.position)
        progress = self._stats.open_progress(
            f"epoch {start.epoch}", schedule.num_samples, is_shown=self._progress
        )

        def on_deliver(cursor: Cursor, size: int) -> None:
            if size:
                self._stats.add(size)
                # Before the batch counts as delivered: an interrupt may come here.
                progress.update(size)
            self._position.deliver(cursor, began_from)
            source.deliver_to_loader(version)
            if cursor.epoch > start.epoch:
                self._log_epoch(start.epoch)

        self._stats.begin()
        return BatchIterator(
            schedule,
            running,
            source.bad_episodes,
            texts=self._texts,
            depth=self._depth,
            timeout_s=self.timeout,
            on_deliver=on_deliver,
            stats=self._stats,
            on_close=progress.close,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands after the batches delivered so far.

        Plain JSON values, the same on every rank; a run with any world size, batch size and number
        of workers can continue from it. It holds the order's receipt and the quarantined episodes.
        """
        self._adopt_position()
        return self._source.capture(self._position.cursor)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iterator continue where a state stands.

        Also takes {"batches_consumed", "batch_size"}: the batches each rank of this world size has
        taken since epoch 0.
        """
        if counts_batches(state):
            cursor = cursor_from_batches(state, self._cut, self.stream.num_frames)
        else:
            cursor = self._source.restore(state)
        self._adopted = self._source.position.version
        self._position.stage(cursor)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin `epoch`, unless a loaded state for it is still unused."""
        self._adopt_position()
        self._position.set_epoch(arguments.whole_number(epoch, "epoch", least=0))

    def stats(self) -> dict[str, float]:
        """Return a flat dict of counters and rates, ready for a logger."""
        return self._stats.stats()

    def close(self) -> None:
        """End the workers; the next iterator starts new ones."""
        running, self._running = self._running, None
        if running is not None:
            running.pool.close()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_running": None, "_starting": None, "_position": copy.copy(self._position)}
        return self.__dict__ | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy stands where the loader did, and has workers, memory and counts of its own.
        self.__dict__.update(state)
        self._reset()

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._counters = Counters(max(self.num_workers, 1))
        images_per_sample = self._source.spec.dataset.spec.images_per_sample
        self._stats = LoaderStats(self._counters.summary, images_per_sample)

    def _adopt_position(self) -> None:
        """Take over a position that was set on the stream since the last look at it."""
        theirs = self._source.position
        if theirs.version == self._adopted:
            return
        self._adopted = theirs.version
        if theirs.batches_taken is None:
            assert theirs.last_staged is not None
            self._position.stage(theirs.last_staged)
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
            with self._starting:
                if self._running is None or not self._running.pool.is_usable:
                    self.close()
                    self._running = self._start()
                return self._running
        except BaseException:
            park_at_shutdown()
            raise

    def _start(self) -> RunningPool:
        source = self._source
        resources = source.choose_resources(max(self.num_workers, 1), self._gpu)
        options = PoolOptions(
            self._most_samples,
            self.num_workers,
            self._depth,
            device=self._device,
            yuv_cameras=() if self._device is None else self._yuv_cameras,
            gpu_decodes=self._gpu is not None,
            pin_memory=self.pin_memory,
        )
        open_frames, spec = None, source.spec
        if resources.shared is not None:
            open_frames = prepare_frame_memory(
                spec.dataset, resources.shared, spec.limits.frame_cache_dir
            )
        return start_pool(options, source.layout, resources, self._counters, open_frames)

    def _choose_depth(self, prefetch_factor: int | None) -> int:
        """Return how many batches are built ahead. Opens videos if that depends on them."""
        if prefetch_factor is not None:
            prefetch_factor = arguments.whole_number(prefetch_factor, "prefetch_factor", least=1)
        if not self.num_workers:
            return 1
        if prefetch_factor is not None:
            return prefetch_factor
        # In RAM a slot takes memory once it is written to, on a GPU those of two iterators do.
        nbytes = self._batch_bytes() * (2 if self._gpu else 1)
        return choose_depth(self._cut.batch_size, nbytes, self.num_workers)

    def _batch_bytes(self) -> int:
        """Return the bytes of a batch's arrays, as workers build it. Opens videos."""
        layout = self._source.layout if self._device is None else self._yuv_layout()
        return self._most_samples * layout.nbytes

    @property
    def _most_samples(self) -> int:
        """The most samples a batch ever has: at most this rank's samples of an epoch."""
        return min(self._cut.batch_size, len(self.stream))

    def _check_memory(self) -> None:
        """Raise SelectionError if a batch is larger than the machine's memory. Opens videos.

        How much memory is free now means little: the system evicts cached files. Torch itself
        reports a lack of GPU memory.
        """
        if self._gpu is not None:
            return
        memory, batch_bytes, samples = whole_memory(), self._batch_bytes(), self._most_samples
        if batch_bytes > memory:
            raise SelectionError(
                f"batch_size={self._cut.batch_size}: a batch of {samples} samples takes "
                f"{format_bytes(batch_bytes)}, and there are {format_bytes(memory)} "
                f"of memory. Choose at most {memory * samples // batch_bytes}, fewer or smaller "
                "frames (camera_keys, resize), or return_uint8=True."
            )

    def _choose_gpu(self) -> str | None:
        """Return the GPU that decodes, if one does; batches are then delivered there."""
        asked = self.stream.video_decode_device
        if asked == "cpu":
            return None
        gpu = choose_gpu(asked, self._device, self._yuv_layout())
        if gpu is not None:
            self._device = torch.device(gpu)
        return gpu

    def _yuv_layout(self) -> SampleLayout:
        """Return how samples lie in a batch that goes to a device. Opens videos."""
        return self._source.layout.in_yuv(self._yuv_cameras)

    @functools.cached_property
    def _yuv_cameras(self) -> list[str]:
        """The cameras whose frames can travel as packed YUV 4:2:0. Opens videos."""
        return find_yuv_cameras(self._source.layout)

    def _log_epoch(self, epoch: int) -> None:
        logger.info("epoch %d: %s", epoch, self._stats.line())
        bad = self._source.bad_episodes.summary()
        if bad:
            logger.warning("epoch %d: %s", epoch, bad)

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


def frame_budget(loader: StreamingDataLoader) -> FrameBudget:
    """Return the memory for decoded frames of this rank, and why it is that much.

    Starts the workers if they are not running: "auto" depends on the memory that is free then.
    """
    return loader._open().frames


def batch_bytes(loader: StreamingDataLoader) -> int:
    """Return the bytes of one batch's arrays, as workers build it."""
    return loader._batch_bytes()
