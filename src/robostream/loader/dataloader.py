# SPDX-License-Identifier: Apache-2.0
"""`StreamingDataLoader`: a torch DataLoader that knows where it stands."""

from __future__ import annotations

import copy
import functools
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

from robostream import arguments, config
from robostream.assemble import SampleLayout, find_yuv_cameras
from robostream.byte_sizes import format_bytes
from robostream.device import (
    choose_device,
    choose_gpu,
    count_workers,
    create_memory,
    gpu_memory,
    map_memory,
)
from robostream.errors import SelectionError
from robostream.loader.batches import BatchIterator
from robostream.loader.machine import local_ranks, share_of_cores, whole_memory
from robostream.loader.options import choose_depth, refuse_samples, warn_of_ignored
from robostream.loader.position import Position
from robostream.loader.running_pool import Order, RunningPool, start_pool
from robostream.loader.stats import Counters, LoaderStats
from robostream.loader.streaming import StreamingLeRobotDataset
from robostream.loader.worker_setup import open_kept_frames
from robostream.plan import (
    Cursor,
    Cut,
    Schedule,
    advance,
    capture_state,
    counts_batches,
    cursor_from_batches,
    dropped_frames,
    steps_left,
)
from robostream.workers import park_at_shutdown, signals_held

logger = logging.getLogger(__name__)

# Attributes that workers are started with. Torch itself guards batch_size, drop_last and dataset.
_FIXED = ("num_workers", "prefetch_factor", "pin_memory", "collate_fn")


class StreamingDataLoader(DataLoader[Any]):
    """Delivers the batches of a StreamingLeRobotDataset in the one order, resumable at any batch.

    `num_workers` processes decode, each with one thread, and write their parts of every batch
    straight into memory this process sees. They start with the first iterator and stay.

    docs/loading.md has a table of what `iter`, leaving early, `state_dict`, `load_state_dict` and
    `set_epoch` do.

    Args:
        dataset: The stream.
        batch_size: Samples per batch of this rank.
        num_workers: Worker processes; None for this rank's share of the cores, at most 8 if a GPU
            decodes; 0 to build batches in this process when they are asked for.
        drop_last: Whether to drop the frames at the end that do not fill a global batch; otherwise
            the last batches are shorter, and completed so that all ranks deliver equally many.
        pin_memory: Copy batches to page-locked memory.
        device: "cuda" or "cuda:0" for batches on that GPU, copied while it computes; pictures
            travel as 4:2:0 and become RGB there. "cpu" does the same without a GPU, for tests.
        prefetch_factor: Batches built ahead, by all workers together.
        timeout: Seconds to wait for a batch; 0 waits for ever.
        progress: Show a progress bar (on a terminal only).
        persistent_workers: Ignored: workers always stay over epochs.
        multiprocessing_context: Ignored: workers are fresh interpreters.
    """

    # So `accelerator.prepare` leaves this loader alone. Otherwise it would give each process a part
    # of what is already that process's part, and say nothing.
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
        warn_of_ignored(multiprocessing_context=multiprocessing_context)
        del persistent_workers  # true or false, it says nothing new
        drop_last = arguments.truth(drop_last, "drop_last")
        timeout = min(arguments.number(timeout, "timeout", or_zero=True), config.MOST_TIMEOUT_S)
        self._cut = Cut(dataset.rank, dataset.world_size, batch_size, drop_last)
        # Refuses, with the reason, an epoch that would deliver nothing.
        advance(self._cut, dataset.num_frames, Cursor(0, 0), 0)
        super().__init__(
            dataset, batch_size, drop_last=drop_last, timeout=timeout, collate_fn=refuse_samples
        )
        # The layout tries the transform, so one that cannot be used is refused here.
        self._texts = dataset._layout.texts
        self.pin_memory = arguments.truth(pin_memory, "pin_memory")
        self._device = choose_device(device)
        self._gpu = self._choose_gpu()
        self._check_memory()
        if num_workers is None:
            num_workers = share_of_cores(local_ranks(dataset.world_size))
            if self._gpu:
                num_workers = count_workers(num_workers, gpu_memory(self._gpu))
        self.num_workers = arguments.whole_number(num_workers, "num_workers", least=0)
        self._depth = self._choose_depth(prefetch_factor)
        # None where nothing is built ahead, as torch has it.
        self.prefetch_factor = self._depth if self.num_workers else None
        self._progress = arguments.truth(progress, "progress")
        self._bookmark = Position()
        # A bookmark that was set on the stream and gone on from by now is not for a new loader.
        self._adopted = dataset._bookmark.version if dataset._bookmark.is_used else 0
        self._team: RunningPool | None = None
        self._begin_anew()
        self._said_dropped = False
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

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return steps_left(self._cut, self.stream.num_frames, 0)

    def __repr__(self) -> str:
        cursor = self._bookmark.cursor
        return (
            f"StreamingDataLoader({self.stream.repo_id!r}, batch_size={self._cut.batch_size}, "
            f"batches={len(self)}, num_workers={self.num_workers}, epoch={cursor.epoch}, "
            f"position={cursor.position} of {self.stream.num_frames})"
        )

    def __iter__(self) -> BatchIterator:  # type: ignore[override]
        """Return an iterator over the epoch, from where the consumer stands."""
        if get_worker_info() is not None:
            raise SelectionError(
                "a StreamingDataLoader was iterated over by a worker process of torch's "
                "DataLoader, and each of them would deliver all of its batches. Iterate over it "
                "in the training process: it has worker processes of its own."
            )
        self._adopt()
        start, staged = self._bookmark.next_start(), self._bookmark.staged
        version = self._adopted
        self._say_what_is_dropped(start)
        plan = self.stream._bad_episodes.plan_of(self.stream.plan(start.epoch))
        team = self._open()

        tour = Schedule(plan, self._cut, start.position)
        show, close = self._tally.open_bar(tour.num_steps if self._progress else None)

        def on_deliver(cursor: Cursor, size: int) -> None:
            if size:
                self._tally.add(size)
                show()  # before the batch counts as delivered: an interrupt may come here
            self._bookmark.deliver(cursor, staged)
            self.stream._direct.note_loader(version)
            if cursor.epoch > start.epoch:
                self._report(start.epoch)

        self._tally.begin()
        return BatchIterator(
            tour,
            team.crew,
            team.slots,
            self.stream._bad_episodes,
            texts=self._texts,
            depth=self._depth,
            timeout_s=self.timeout,
            finish=team.finish,
            on_deliver=on_deliver,
            tally=self._tally,
            on_close=close,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands after the batches delivered so far.

        Plain JSON values, the same on every rank; any world size, batch size and number of workers
        can go on from it. It holds the order's receipt and the episodes set aside.
        """
        self._adopt()
        stream, cursor = self.stream, self._bookmark.cursor
        plan = stream._bad_episodes.plan_of(stream.plan(cursor.epoch))
        return capture_state(plan, cursor.position, fingerprint=stream.meta.fingerprint).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iterator go on where a state stands.

        Also takes {"batches_consumed", "batch_size"}: the batches each rank of this world size has
        taken since epoch 0.
        """
        if counts_batches(state):
            cursor = cursor_from_batches(state, self._cut, self.stream.num_frames)
        else:
            cursor = self.stream._check_state(state)
        self._adopted = self.stream._bookmark.version
        self._bookmark.stage(cursor)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin `epoch`, unless a loaded state stands in that epoch."""
        self._adopt()
        self._bookmark.set_epoch(arguments.whole_number(epoch, "epoch", least=0))

    def stats(self) -> dict[str, float]:
        """Return a flat dict of counters and rates, ready for a logger."""
        return self._tally.stats()

    def close(self) -> None:
        """End the workers; the next iterator starts new ones."""
        team, self._team = self._team, None
        if team is not None:
            team.crew.close()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_team": None, "_starting": None, "_bookmark": copy.copy(self._bookmark)}
        return self.__dict__ | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy stands where the loader did, and has workers, memory and counts of its own.
        self.__dict__.update(state)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._starting = threading.Lock()
        self._counters = Counters(max(self.num_workers, 1))
        self._tally = LoaderStats(
            self._counters.summary, self.stream._dataset.spec.images_per_sample
        )

    def _adopt(self) -> None:
        """Take over a bookmark that was set on the stream since it was last looked at."""
        if self.stream._bookmark.version != self._adopted:
            self._adopted = self.stream._bookmark.version
            self._bookmark.stage(self._cursor_of_stream())

    def _cursor_of_stream(self) -> Cursor:
        bookmark = self.stream._bookmark
        if bookmark.taken is not None:
            state = {"batches_consumed": bookmark.taken[0], "batch_size": bookmark.taken[1]}
            return cursor_from_batches(state, self._cut, self.stream.num_frames)
        assert bookmark.last_staged is not None
        return bookmark.last_staged

    def _open(self) -> RunningPool:
        """Return the workers and the memory they write to, made anew where they are missing.

        Both together: an interrupt, or another thread, must not leave workers that write to one
        memory and a consumer that reads another.
        """
        try:
            with self._starting:
                if self._team is None or not self._team.crew.is_usable:
                    self.close()
                    self._team = self._start()
                return self._team
        except BaseException:
            park_at_shutdown()
            raise

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
        layout = self.stream._layout if self._device is None else self._in_parcels()
        return self._most_samples * layout.nbytes

    @property
    def _most_samples(self) -> int:
        """The most samples a batch ever has: not more than there are for this rank in an epoch."""
        return min(self._cut.batch_size, len(self.stream))

    def _check_memory(self) -> None:
        """Refuse a batch that is larger than the memory it is built in. Opens videos.

        How much of the memory is free now says little: caches of files make room. What a GPU has no
        room for, torch says.
        """
        if self._gpu is not None:
            return
        memory, batch_bytes, samples = whole_memory(), self._batch_bytes(), self._most_samples
        if batch_bytes > memory:
            raise SelectionError(
                f"batch_size={self._cut.batch_size}: a batch of {samples} samples takes "
                f"{format_bytes(batch_bytes)}, and there are {format_bytes(memory)} "
                f"of memory. Choose at most {memory * samples // batch_bytes}, fewer or smaller "
                "pictures (camera_keys, resize), or return_uint8=True."
            )

    def _choose_gpu(self) -> str | None:
        """Return the GPU that decodes, if one does; batches are then delivered there."""
        asked = self.stream.video_decode_device
        if asked == "cpu":
            return None
        gpu = choose_gpu(asked, self._device, self._in_parcels())
        if gpu is not None:
            self._device = torch.device(gpu)
        return gpu

    def _in_parcels(self) -> SampleLayout:
        """Return how samples lie in a batch that goes to a device. Opens videos."""
        return self.stream._layout.in_yuv(self._parcels)

    @functools.cached_property
    def _parcels(self) -> list[str]:
        """The cameras whose pictures can travel as 4:2:0. Opens videos."""
        return find_yuv_cameras(self.stream._layout)

    def _start(self) -> RunningPool:
        outfit = self.stream._fit_out(max(self.num_workers, 1), self._gpu)
        order = Order(
            self._most_samples,
            self.num_workers,
            self._depth,
            device=self._device,
            parcels=() if self._device is None else self._parcels,
            decodes_there=self._gpu is not None,
            pin_memory=self.pin_memory,
        )
        before, open_memory = self._counters.rows, open_kept_frames(outfit, self.stream._limits)
        # An interrupt would leave processes and memory that nobody ends.
        with signals_held():
            board = create_memory(before.nbytes)
            kept = open_memory() if open_memory else None
            rows = map_memory(board)[: before.nbytes].view(np.float64).reshape(before.shape)
            rows[:] = before
            self._counters.rows = rows
            try:
                return start_pool(order, outfit, rows, board=board, kept=kept)
            finally:
                for fd in (board, kept):
                    if fd is not None:
                        os.close(fd)

    def _report(self, epoch: int) -> None:
        logger.info("epoch %d: %s", epoch, self._tally.line())
        bad = self.stream._bad_episodes.summary()
        if bad:
            logger.warning("epoch %d: %s", epoch, bad)

    def _say_what_is_dropped(self, start: Cursor) -> None:
        dropped = dropped_frames(self._cut, self.stream.num_frames, start.position)
        if dropped and not self._said_dropped:
            logger.warning(
                "drop_last=True: the last %d of %d frames of each epoch do not fill a global batch "
                "of %d and are not delivered; with drop_last=False they are",
                dropped,
                self.stream.num_frames,
                self._cut.step_size,
            )
            self._said_dropped = True
