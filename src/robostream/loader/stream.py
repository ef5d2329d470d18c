# SPDX-License-Identifier: Apache-2.0
"""`FrameStream`: what the stream of one dataset and that of a mixture have in common."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from robostream import arguments
from robostream.batches import WorkerContext
from robostream.device import refuse_gpu
from robostream.loader.cursor import StreamCursor
from robostream.loader.options import for_pickle, refuse_items
from robostream.loader.samples import iterate_samples
from robostream.meta import forward
from robostream.plan import EpochPlan, WorkerShard, rank_lanes

_IN_WORKER = "kept by the iterator of a worker"
_WORK = ("fetch", "decode", "convert", "copy")


def cursor_of(stream: FrameStream) -> StreamCursor:
    """Return the specification and position of a stream, for the loaders over it."""
    return stream._cursor


class FrameStream(IterableDataset[dict[str, Any]]):
    """An ordered, resumable stream of samples that ranks share.

    Args:
        cursor: What it delivers, and where it stands.
        repo_id: Its name.
        video_decode_device: Where its loaders decode videos.
    """

    num_frames: Final[int] = forward(
        "_cursor.num_frames", "Frames that all ranks together deliver in an epoch."
    )
    seed: Final[int] = forward("_cursor.seed", "Seed of the order.")
    shuffle: Final[bool] = forward("_cursor.shuffle", "Whether the order is shuffled.")
    episode_pool_size: Final[int] = forward(
        "_cursor.pool_size", "About how many episodes are mixed at a time, over all ranks."
    )
    rank: Final[int] = forward(
        "_cursor.rank.rank", "The number of this process among those that share an epoch."
    )
    world_size: Final[int] = forward(
        "_cursor.rank.world_size", "How many processes share an epoch."
    )
    lanes: Final[int] = forward("_cursor.lanes", "How many lanes the order is cut into.")

    # The process that opened it, and its context. A copy begins with None.
    _context: tuple[int, WorkerContext] | None = None

    def __init__(self, cursor: StreamCursor, repo_id: str, video_decode_device: str) -> None:
        self._cursor = cursor
        self.repo_id: str = repo_id
        self.video_decode_device: str = video_decode_device

    @property
    def num_shards(self) -> int:
        """How many workers of a plain DataLoader get samples: as many as this rank has lanes."""
        return len(rank_lanes(self._cursor.cut, self.lanes))

    def __len__(self) -> int:
        """Return how many samples this rank delivers in an epoch."""
        return -(-self.num_frames // self.world_size)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch."""
        return self._cursor.plan(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator, also of loaders over this stream, begin `epoch`.

        A loaded state in that epoch stays if no iterator has continued from it yet.
        """
        self._cursor.set_epoch(arguments.whole_number(epoch, "epoch", least=0))

    def __getitem__(self, item: object) -> NoReturn:
        refuse_items()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iterate_samples(self._cursor, self._open_context)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration over this object itself stands.

        A loader has its own state, and so have the workers of a plain DataLoader, whose progress
        this object cannot see.
        """
        if get_worker_info() is not None:
            return {_IN_WORKER: True}  # the state of the worker's iterator has its position
        self._cursor.check_is_reader()
        cursor = self._cursor.position.cursor
        return self._cursor.capture(self._cursor.current_plan(cursor.epoch), cursor.position)

    def load_state_dict(self, state: Mapping[str, Any], *, skip_epoch: bool = False) -> None:
        """Continue where a state stands, on any number of ranks and workers.

        Takes a state of this class or of StreamingDataLoader, or {"batches_consumed",
        "batch_size"}, the batches each rank has taken from a plain DataLoader with as many workers.
        Loaders over this stream continue there too with their next iterator.

        If the weights or datasets of a mixture have changed, the new ones begin with the next
        epoch. In the middle of an epoch that is an error, unless `skip_epoch` drops the rest of it.
        """
        if not (isinstance(state, Mapping) and _IN_WORKER in state):
            self._cursor.load_state_dict(state, skip_epoch=skip_epoch)

    def video_decoder_cache_stats(self) -> dict[str, float]:
        """Return hits, misses, evictions and hit rate of the open video files in this process."""
        stats = self._stats()
        counts = {name: stats[f"file_{name}"] for name in ("hits", "misses", "evictions")}
        return counts | {"hit_rate": round(stats["file_hit_rate"], 4)}

    def timing_stats(self) -> dict[str, float]:
        """Return the seconds of each kind of work in iterating over this object itself."""
        stats = self._stats()
        return {f"{kind}_s_total": stats[f"{kind}_s"] for kind in _WORK}

    def close(self) -> None:
        """Close the files and decoders of this process; the next iterator opens them again."""
        if self._context is not None and self._context[0] == os.getpid():
            self._context[1].close()
        self._context = None

    def __getstate__(self) -> Any:
        # A copy stands where this one does, moves on independently and opens its own files.
        own = {"_context": None, "_cursor": copy.copy(self._cursor)}
        return for_pickle(self.__dict__ | own, next(iter(self._cursor.content.transforms), None))

    def _open_context(self, num_workers: int) -> WorkerContext:
        """Return the context in which this process builds samples; a fork opens its own."""
        if self._context is None or self._context[0] != os.getpid():
            refuse_gpu(self.video_decode_device)
            frames, budgets = self._cursor.choose_resources(num_workers)
            layout = self._cursor.layout
            # Frames are not shared with other processes, even if all would fit.
            budgets = dataclasses.replace(budgets, frame_bytes=frames.nbytes // num_workers)
            shard = WorkerShard(0, 1, len(layout.cameras))
            self._context = os.getpid(), WorkerContext(layout, shard, budgets)
        return self._context[1]

    def _stats(self) -> dict[str, float]:
        context = self._open_context(1)
        context.count()
        return context.statistics.summary()
