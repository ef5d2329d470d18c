# SPDX-License-Identifier: Apache-2.0
"""`StreamingLeRobotDataset`: a LeRobot dataset as an ordered, resumable, distributed stream.

`FrameStream` is what it has in common with the stream of a mixture.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from robostream import arguments, config
from robostream.assemble import (
    DatasetLocation,
    EpisodeFilter,
    EpisodeWeights,
    FrameRanges,
    ImageTransforms,
    Resize,
    SampleOptions,
    choose_cache,
    open_dataset,
)
from robostream.batches import WorkerContext, probe_layout
from robostream.device import check_decode_device, refuse_gpu
from robostream.errors import SelectionError
from robostream.loader.cursor import BadEpisodes, StreamContent, StreamCursor, epochs_of, first_plan
from robostream.loader.options import accept_legacy, for_pickle, refuse_positions
from robostream.loader.ranks import discover_rank
from robostream.loader.resources import ResourceLimits
from robostream.loader.samples import iterate_samples
from robostream.meta import Features, LeRobotDatasetMetadata, forward
from robostream.plan import (
    Cursor,
    EpochPlan,
    WorkerShard,
    check_batches,
    counts_batches,
    rank_lanes,
)

_IN_WORKER = "kept by the iterator of a worker"
_WORK = ("fetch", "decode", "convert", "copy")


def cursor_of(stream: FrameStream) -> StreamCursor:
    """Return the specification and position of a stream, for the loaders over it."""
    return stream._cursor


class FrameStream(IterableDataset[dict[str, Any]]):
    """An ordered, resumable stream of samples that ranks share: of one dataset, or a mixture."""

    num_frames: Final[int] = forward(
        "_cursor.order.num_frames", "Frames that all ranks together deliver in an epoch."
    )
    seed: Final[int] = forward("_cursor.order.seed", "Seed of the order.")
    shuffle: Final[bool] = forward("_cursor.order.shuffle", "Whether the order is shuffled.")
    episode_pool_size: Final[int] = forward(
        "_cursor.order.pool_size", "About how many episodes are mixed at a time, over all ranks."
    )
    rank: Final[int] = forward(
        "_cursor.rank.rank", "The number of this process among those that share an epoch."
    )
    world_size: Final[int] = forward(
        "_cursor.rank.world_size", "How many processes share an epoch."
    )
    lanes: Final[int] = forward("_cursor.order.lanes", "How many lanes the order is cut into.")

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
        epoch, cursor = arguments.whole_number(epoch, "epoch", least=0), self._cursor
        cursor.position.set_epoch(epoch, is_used=cursor.is_read_by_workers)

    def __getitem__(self, item: object) -> NoReturn:
        raise SelectionError(
            "a StreamingLeRobotDataset has no items by number: iterate over it, or over a "
            "StreamingDataLoader of it. LeRobotDataset has dataset[3] and dataset[3:5]."
        )

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
        position = self._cursor.position
        if counts_batches(state):
            position.stage(Cursor(0, 0), check_batches(state))
        elif _IN_WORKER not in state:
            position.stage(self._cursor.restore(state, skip_epoch=skip_epoch))

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


class StreamingLeRobotDataset(FrameStream):
    """Streams every selected frame exactly once per epoch, in one order all ranks agree on.

    Use it with `StreamingDataLoader`, which adds batches, exact state and any number of workers.
    Direct iteration, a plain DataLoader and torchdata's StatefulDataLoader work too
    (docs/loading.md lists the guarantees of each).

    Args:
        repo_id: The dataset's name, path or URL; with `root` given it is only a name.
        root: The dataset's folder or fsspec URL.
        episodes: Episodes to read; None for all.
        image_transforms: Applied to each camera of a sample, depth excepted.
        delta_timestamps: Windows by key, in seconds relative to a frame.
        tolerance_s: How far a frame's time may be from the table's.
        revision: Hub branch, tag or commit; pinned to a commit.
        force_cache_sync: Download metadata again.
        episode_pool_size: About how many episodes are mixed at a time, over all ranks.
        seed: Seed of the order.
        shuffle: False for dataset order.
        return_uint8: Cameras as uint8 instead of float32 in [0, 1].
        rank: This process's number, with `world_size`; by default found from the launcher.
        world_size: How many processes share the epoch.
        video_decoder_cache_size: How many video files' indexes are kept.
        data_files_root: Where data/ and videos/ lie, if not beside meta/.
        video_decode_device: "cpu"; "cuda" or "cuda:0" to decode on that GPU, for batches of a
            StreamingDataLoader; "auto" for the GPU where it can, if batches are delivered there.
        episode_filter: Takes an episode's row, returns whether to read it.
        camera_keys: Cameras to decode; None for all, an empty list for none.
        resize: (height, width) that frames are scaled to when decoded, or such a pair by camera.
        frames: Frames to deliver: (first, stop) pairs by episode, or a function of an episode's row
            that returns them; episodes without an entry deliver all. Windows still reach beyond.
        stride: Deliver every stride-th of these frames; windows keep the dataset's spacing.
        episode_weights: How often to deliver an episode, relative to the others: numbers by
            episode, 1 without an entry, or a function of its row. Epochs keep their length.
        clip_windows: Clamp windows at the ranges of `frames` instead of at the episode.
        lanes: How many lanes the order is cut into. World sizes that divide it read least.
        frame_cache_bytes: RAM for decoded frames per rank: a number, a text such as "2GiB", or
            "auto" for what the order needs, at most a quarter of the memory this process may use.
        frame_cache_dir: A folder on a fast disk that keeps all decoded frames for all ranks.
        depth_output_unit: "mm" or "m".
        on_bad_episode: "raise", or "quarantine" to continue without it.
        token: Hub token.
        storage_options: Options of a URL's store: keys, tokens, endpoint.
        cache_dir: A local folder that caches the bytes of a remote dataset, for all processes of
            the machine and later runs; by default a folder of the user's cache.
        cache_limit: The size of that cache, such as "200GB"; by default half of the free disk
            space, 0 for no cache.
        **legacy: Arguments of other loaders that have no effect here, each with a warning:
            `streaming`, `buffer_size`, `max_num_shards`, `rng`, `prefetch_videos`,
            `video_prefetch_workers`, `decode_threads`.

    Attributes:
        meta: The dataset's metadata.
    """

    root: Final[Path | str] = forward("meta.root", "The folder or URL of the metadata.")
    revision: Final[str | None] = forward(
        "meta.revision", "The pinned commit, for a dataset on the Hub."
    )
    fps: Final[int] = forward("meta.fps", "Frames per second.")
    features: Final[Features] = forward("meta.features", "All features of the dataset.")
    tolerance_s: Final[float] = forward(
        "_dataset.spec.tolerance_s", "How far a frame's time may be from the table's."
    )
    image_transforms: Final[ImageTransforms | None] = forward(
        "_dataset.spec.image_transforms", "The transform of each camera of a sample."
    )
    depth_output_unit: Final[str] = forward(
        "_dataset.spec.depth_output_unit", "The unit of depth cameras."
    )

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Sequence[int] | None = None,
        image_transforms: ImageTransforms | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = config.TOLERANCE_S,
        revision: str | None = None,
        force_cache_sync: bool = False,
        *by_position: Any,
        episode_pool_size: int = config.EPISODE_POOL_SIZE,
        seed: int = config.SEED,
        shuffle: bool = True,
        return_uint8: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        video_decoder_cache_size: int | None = None,
        data_files_root: str | Path | None = None,
        video_decode_device: str = "cpu",
        episode_filter: EpisodeFilter | None = None,
        camera_keys: Sequence[str] | None = None,
        resize: Resize | None = None,
        frames: FrameRanges | None = None,
        stride: int = 1,
        episode_weights: EpisodeWeights | None = None,
        clip_windows: bool = False,
        lanes: int | None = None,
        frame_cache_bytes: int | str = "auto",
        frame_cache_dir: str | Path | None = None,
        depth_output_unit: str = "mm",
        on_bad_episode: str = "raise",
        token: str | None = None,
        storage_options: dict[str, Any] | None = None,
        cache_dir: str | Path | None = None,
        cache_limit: int | str | None = None,
        **legacy: Any,
    ) -> None:
        refuse_positions(by_position)
        accept_legacy(legacy)
        check_decode_device(video_decode_device)
        access = token, storage_options, choose_cache(cache_dir, cache_limit)
        dataset = open_dataset(
            DatasetLocation(repo_id, root, revision, data_files_root, force_cache_sync, *access),
            SampleOptions(
                episodes=episodes,
                episode_filter=episode_filter,
                camera_keys=camera_keys,
                delta_timestamps=delta_timestamps,
                tolerance_s=tolerance_s,
                return_uint8=return_uint8,
                depth_output_unit=depth_output_unit,
                image_transforms=image_transforms,
                resize=resize,
                frames=frames,
                stride=stride,
                episode_weights=episode_weights,
                clip_windows=clip_windows,
            ),
        )
        self.meta: LeRobotDatasetMetadata = dataset.meta
        self.delta_timestamps: Mapping[str, Sequence[float]] | None = delta_timestamps
        self._dataset = dataset
        place = discover_rank(rank, world_size)
        order = (place.world_size, seed, episode_pool_size, lanes)
        cursor = StreamCursor(
            StreamContent([dataset], functools.partial(probe_layout, dataset)),
            place,
            first_plan(epochs_of(dataset), *order, shuffle=shuffle),
            lanes is None,
            ResourceLimits(frame_cache_bytes, frame_cache_dir, video_decoder_cache_size),
            BadEpisodes(on_bad_episode),
        )
        super().__init__(cursor, dataset.meta.repo_id, video_decode_device)

    @property
    def episodes(self) -> list[int]:
        """The selected episodes."""
        return [int(episode) for episode in self._dataset.selection.episodes]

    @property
    def num_episodes(self) -> int:
        """Number of selected episodes."""
        return len(self._dataset.selection.episodes)

    def __repr__(self) -> str:
        cursor = self._cursor.position.cursor
        order = f"episode_pool_size={self.episode_pool_size}, seed={self.seed}"
        return (
            f"StreamingLeRobotDataset({self.repo_id!r}, episodes={self.num_episodes}, "
            f"frames={self.num_frames}, cameras={list(self._dataset.spec.cameras)}, "
            f"{order if self.shuffle else 'shuffle=False'}, lanes={self.lanes}, rank={self.rank} "
            f"of {self.world_size}, epoch={cursor.epoch}, position={cursor.position})"
        )
