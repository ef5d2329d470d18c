# SPDX-License-Identifier: Apache-2.0
"""`StreamingLeRobotDataset`: a LeRobot dataset as an ordered, resumable, distributed stream."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from robostream import arguments, config
from robostream.assemble import (
    DatasetLocation,
    EpisodeFilter,
    ImageTransforms,
    Resize,
    SampleLayout,
    SampleOptions,
    choose_cache,
    open_dataset,
)
from robostream.batches import WorkerContext
from robostream.device import check_decode_device, refuse_gpu
from robostream.loader.bad_episodes import BadEpisodes
from robostream.loader.by_value import for_pickle
from robostream.loader.direct import DirectIteration
from robostream.loader.options import (
    accept_legacy,
    choose_lanes,
    refuse_items,
    refuse_positions,
)
from robostream.loader.position import Position
from robostream.loader.ranks import discover_rank
from robostream.loader.samples import SampleIterator
from robostream.loader.worker_setup import ResourceLimits, WorkerSetup, choose_layout, choose_setup
from robostream.meta import Features
from robostream.plan import (
    Cursor,
    Cut,
    EpochPlan,
    WorkerShard,
    capture_state,
    check_batches,
    check_state,
    counts_batches,
    parse_state,
    rank_lanes,
)

_IN_WORKER = "kept by the iterator of a worker"
_WORK = ("fetch", "decode", "convert", "copy")


class StreamingLeRobotDataset(IterableDataset[dict[str, Any]]):
    """Streams every selected frame exactly once per epoch, in one order all ranks agree on.

    Use it with `StreamingDataLoader`, which adds batches, exact state and any number of workers;
    iterating over it directly, a plain DataLoader and torchdata's StatefulDataLoader work too
    (docs/loading.md says what each guarantees).

    Args:
        repo_id: The dataset's name, path or URL; with `root` given it is only a name.
        root: The dataset's folder or fsspec URL.
        episodes: Episodes to read; None for all.
        image_transforms: Applied to each camera of a sample, depth excepted.
        delta_timestamps: Windows by key, in seconds relative to a frame.
        tolerance_s: How far a picture's time may be from the table's.
        revision: Hub branch, tag or commit; pinned to a commit.
        force_cache_sync: Download metadata again.
        episode_pool_size: About how many episodes are mixed at a time, over all ranks.
        seed: Seed of the order.
        shuffle: False for dataset order.
        return_uint8: Cameras as uint8 instead of float32 in [0, 1].
        rank: This process's number, with `world_size`; by default found out from the launcher.
        world_size: How many processes share the epoch.
        video_decoder_cache_size: How many video files' indexes are kept at hand.
        data_files_root: Where data/ and videos/ lie, if not beside meta/.
        video_decode_device: "cpu"; "cuda" or "cuda:0" to decode on that GPU, for batches of a
            StreamingDataLoader; "auto" for the GPU where it can, if batches are delivered there.
        episode_filter: Takes an episode's row, returns whether to read it.
        camera_keys: Cameras to decode; None for all, an empty list for none.
        resize: (height, width) pictures are scaled to when decoded, or such a pair by camera.
        lanes: How many lanes the order is cut into. World sizes that divide it read least.
        frame_cache_bytes: RAM for decoded pictures per rank: a number, a text such as "2GiB", or
            "auto" for what the order needs, at most a quarter of the memory this process may use.
        frame_cache_dir: A folder on a fast disk that keeps all decoded pictures for all ranks.
        depth_output_unit: "mm" or "m".
        on_bad_episode: "raise", or "quarantine" to go on without it.
        token: Hub token.
        storage_options: What the store of a URL is opened with: keys, tokens, its address.
        cache_dir: Where bytes of a remote dataset are kept on a local disk, for all processes of
            the machine and later runs; a folder of the user's cache unless given.
        cache_limit: How much may be kept there, such as "200GB"; half of what the disk has left
            unless given, 0 for nothing.
        **legacy: Arguments of other loaders that have no effect here, each with a warning:
            `streaming`, `buffer_size`, `max_num_shards`, `rng`, `prefetch_videos`,
            `video_prefetch_workers`, `decode_threads`.
    """

    # What this very object has at hand; a copy begins with nothing.
    _plan: EpochPlan | None = None
    _worker: tuple[int, WorkerContext] | None = None

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
        self._dataset = open_dataset(
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
            ),
        )
        self.meta, self._selection = self._dataset.meta, self._dataset.selection
        self.repo_id = self.meta.repo_id
        self._delta_timestamps = delta_timestamps
        self._rank = discover_rank(rank, world_size)
        self.seed = arguments.whole_number(seed, "seed", least=0)
        self.shuffle = arguments.truth(shuffle, "shuffle")
        self.episode_pool_size = arguments.whole_number(episode_pool_size, "episode_pool_size", 1)
        self.lanes = choose_lanes(lanes, self.num_episodes, self.world_size, shuffle=self.shuffle)
        self._lanes_are_given = lanes is not None
        self.video_decode_device = video_decode_device
        self._limits = ResourceLimits(frame_cache_bytes, frame_cache_dir, video_decoder_cache_size)
        self._direct, self._bad_episodes = DirectIteration(), BadEpisodes(on_bad_episode)

    @property
    def root(self) -> Path | str:
        """The folder or URL of the metadata."""
        return self.meta.root

    @property
    def revision(self) -> str | None:
        """The pinned commit, for a dataset on the Hub."""
        return self.meta.revision

    @property
    def episodes(self) -> list[int]:
        """The selected episodes."""
        return [int(episode) for episode in self._selection.episodes]

    @property
    def num_frames(self) -> int:
        """Frames of the selected episodes: what all ranks together deliver in an epoch."""
        return self._selection.num_frames

    @property
    def num_episodes(self) -> int:
        """Number of selected episodes."""
        return len(self._selection.episodes)

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self.meta.fps

    @property
    def features(self) -> Features:
        """All features of the dataset."""
        return self.meta.features

    @property
    def delta_timestamps(self) -> Mapping[str, Sequence[float]] | None:
        """The windows by key, as they were given."""
        return self._delta_timestamps

    @property
    def tolerance_s(self) -> float:
        """How far a picture's time may be from the table's."""
        return self._dataset.spec.tolerance_s

    @property
    def image_transforms(self) -> ImageTransforms | None:
        """What is applied to each camera of a sample."""
        return self._dataset.spec.image_transforms

    @property
    def depth_output_unit(self) -> str:
        """The unit of depth cameras."""
        return self._dataset.spec.depth_output_unit

    @property
    def rank(self) -> int:
        """The number of this process among those that share an epoch."""
        return self._rank.rank

    @property
    def world_size(self) -> int:
        """How many processes share an epoch."""
        return self._rank.world_size

    @property
    def num_shards(self) -> int:
        """How many workers of a plain DataLoader get samples: as many as this rank has lanes."""
        return len(rank_lanes(self._cut, self.lanes))

    def __repr__(self) -> str:
        cursor = self._bookmark.cursor
        order = f"episode_pool_size={self.episode_pool_size}, seed={self.seed}"
        return (
            f"StreamingLeRobotDataset({self.repo_id!r}, episodes={self.num_episodes}, "
            f"frames={self.num_frames}, cameras={list(self._dataset.spec.cameras)}, "
            f"{order if self.shuffle else 'shuffle=False'}, lanes={self.lanes}, rank={self.rank} "
            f"of {self.world_size}, epoch={cursor.epoch}, position={cursor.position})"
        )

    def __len__(self) -> int:
        """Return how many samples this rank delivers in an epoch."""
        return -(-self.num_frames // self.world_size)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch."""
        plan = self._plan
        if plan is None:
            plan = EpochPlan(
                self._selection.lengths,
                episodes=self._selection.episodes,
                seed=self.seed,
                epoch=epoch,
                lanes=self.lanes,
                pool_size=self.episode_pool_size,
                shuffle=self.shuffle,
            )
        # Threads may ask for different epochs; each goes on with what it got.
        self._plan = plan = plan.replace(epoch=epoch)
        return plan

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator, also of loaders over this stream, begin `epoch`.

        If a state in that epoch was loaded and no iterator has gone on from it yet, it stays.
        """
        self._direct.set_epoch(arguments.whole_number(epoch, "epoch", least=0))

    def __getitem__(self, item: object) -> NoReturn:
        refuse_items()

    def __iter__(self) -> SampleIterator:
        return self._direct.begin(
            self.plan, self._cut, self._open_worker, self._bad_episodes, self._check_state
        )

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration over this very object stands.

        A loader has a state of its own, and so do the workers of a plain DataLoader, which cannot
        be seen from here.
        """
        if get_worker_info() is not None:
            return {_IN_WORKER: True}  # a worker's bookmark is in the state of its iterator
        self._direct.check_bookmark()
        cursor = self._bookmark.cursor
        plan = self._bad_episodes.plan_of(self.plan(cursor.epoch))
        return capture_state(plan, cursor.position, fingerprint=self.meta.fingerprint).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state stands, on any number of ranks and workers.

        Takes a state of this class or of StreamingDataLoader, or {"batches_consumed",
        "batch_size"}, the batches each rank has taken from a plain DataLoader with as many workers.
        Loaders over this stream go on there too with their next iterator.
        """
        if counts_batches(state):
            self._bookmark.stage(Cursor(0, 0), check_batches(state))
        elif _IN_WORKER not in state:
            self._bookmark.stage(self._check_state(state))

    def _check_state(self, state: Mapping[str, Any]) -> Cursor:
        """Return where a state stands, or raise StateError if it is of another order.

        The episodes it has set aside are set aside here too.
        """
        parsed, lanes = parse_state(state), self.lanes
        if not self._lanes_are_given and lanes != parsed.lanes <= config.MOST_LANES:
            # The default follows the world size, which may have changed since the state was saved.
            sizes = self.num_episodes, self.world_size
            lanes = choose_lanes(parsed.lanes, *sizes, shuffle=self.shuffle)
        plan = self.plan(parsed.epoch).replace(lanes=lanes)
        check_state(parsed, plan, fingerprint=self.meta.fingerprint)
        self.lanes, self._plan = lanes, plan
        self._bad_episodes.add(dict.fromkeys(parsed.quarantined, "set aside by an earlier run"))
        return parsed.cursor

    def video_decoder_cache_stats(self) -> dict[str, float]:
        """Return hits, misses, evictions and hit rate of the open video files in this process."""
        stats = self._stats()
        counts = {name: stats[f"file_{name}"] for name in ("hits", "misses", "evictions")}
        return counts | {"hit_rate": round(stats["file_hit_rate"], 4)}

    def timing_stats(self) -> dict[str, float]:
        """Return the seconds spent in each kind of work by iterating over this very object."""
        stats = self._stats()
        return {f"{kind}_s_total": stats[f"{kind}_s"] for kind in _WORK}

    def close(self) -> None:
        """Close what this process keeps open; the next iterator opens it again."""
        if self._worker is not None and self._worker[0] == os.getpid():
            self._worker[1].close()
        self._worker = None

    def __getstate__(self) -> Any:
        # A copy stands where this one does, goes its own way and opens its own files.
        own = {
            "_plan": None,
            "_worker": None,
            "_direct": copy.copy(self._direct),
            "_bad_episodes": copy.copy(self._bad_episodes),
        }
        return for_pickle(self.__dict__ | own, self.image_transforms)

    @property
    def _bookmark(self) -> Position:
        """Where iterating over this very object stands."""
        return self._direct.bookmark

    @property
    def _cut(self) -> Cut:
        """The rank's share, sample by sample."""
        return Cut(self.rank, self.world_size, 1, drop_last=False)

    @functools.cached_property
    def _layout(self) -> SampleLayout:
        """How samples lie in a batch."""
        return choose_layout(self._dataset)

    def _fit_out(self, num_workers: int, gpu: str | None = None) -> WorkerSetup:
        """Return what each of this rank's workers is given."""
        plan, layout = self.plan(self._bookmark.cursor.epoch), self._layout
        return choose_setup(layout, plan, self._cut, self._limits, num_workers=num_workers, gpu=gpu)

    def _open_worker(self, num_workers: int) -> WorkerContext:
        """Return what this process builds samples with; a fork opens its own."""
        if self._worker is None or self._worker[0] != os.getpid():
            refuse_gpu(self.video_decode_device)
            outfit = self._fit_out(num_workers)
            # Nobody else sees what this process keeps, also where it would hold all pictures.
            own_bytes = outfit.frames.nbytes // num_workers
            budgets = dataclasses.replace(outfit.budgets, frame_bytes=own_bytes)
            duties = WorkerShard(0, 1, len(outfit.layout.cameras))
            self._worker = os.getpid(), WorkerContext(outfit.layout, duties, budgets)
        return self._worker[1]

    def _stats(self) -> dict[str, float]:
        worker = self._open_worker(1)
        worker.count()
        return worker.statistics.summary()
