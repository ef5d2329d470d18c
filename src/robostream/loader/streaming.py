# SPDX-License-Identifier: Apache-2.0
"""`StreamingLeRobotDataset`: a LeRobot dataset as an ordered, resumable, distributed stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from robostream import config
from robostream.assemble import (
    EpisodeFilter,
    FrameSelection,
    ImageTransforms,
    SampleLayout,
    make_spec,
    select_episodes,
)
from robostream.errors import StateError
from robostream.loader.epochs import EpochCounter, plain_loader_progress
from robostream.loader.options import (
    batches_of,
    check_options,
    choose_lanes,
    warn_of_deprecated,
    worker_place,
)
from robostream.loader.quarantine import Quarantine
from robostream.loader.ranks import discover_rank
from robostream.loader.samples import SampleIterator
from robostream.loader.workshop import Budgets, WorkshopKeeper
from robostream.meta import Features, LeRobotDatasetMetadata, as_location
from robostream.plan import EpochPlan, capture_state, check_state, parse_state

# Single samples built ahead of the consumer: about two usual batches.
_SAMPLES_AHEAD = 64
_IN_WORKER = "kept by the iterator of a worker"
_WORK = ("fetch", "decode", "convert", "copy")


class StreamingLeRobotDataset(IterableDataset[dict[str, Any]]):
    """Streams every selected frame exactly once per epoch, in one order all ranks agree on.

    Use it with `StreamingDataLoader`, which adds batches, exact state and any number of workers;
    iterating over it directly, a plain DataLoader and torchdata's StatefulDataLoader work too
    (docs/loading.md says what each guarantees).

    Args:
        repo_id: The dataset's name; with `root` given it is only a name.
        root: The dataset's folder or fsspec URL.
        episodes: Episodes to read; None for all.
        image_transforms: Applied to each camera of a sample, depth excepted.
        delta_timestamps: Windows by key, in seconds relative to a frame.
        tolerance_s: How far a picture's time may be from the table's.
        revision: Hub branch, tag or commit; pinned to a commit.
        force_cache_sync: Download metadata again.
        streaming: Must be True; LeRobotDataset is the map-style reader.
        episode_pool_size: About how many episodes are mixed at a time, over all ranks.
        buffer_size: Deprecated and ignored.
        max_num_shards: Deprecated and ignored: the stream is not made of shards.
        seed: Seed of the order.
        rng: Deprecated and ignored.
        shuffle: False for dataset order.
        return_uint8: Cameras as uint8 instead of float32 in [0, 1].
        rank: This process's number, with `world_size`; by default found out from the launcher.
        world_size: How many processes share the epoch.
        video_decoder_cache_size: How many video files' indexes are kept at hand.
        data_files_root: Where data/ and videos/ lie, if not beside meta/.
        video_decode_device: "cpu".
        prefetch_videos: Whether to work ahead of the consumer.
        video_prefetch_workers: Deprecated and ignored; see `decode_threads`.
        episode_filter: Takes an episode's row, returns whether to read it.
        camera_keys: Cameras to decode; None for all, an empty list for none.
        lanes: Into how many lanes the order is cut; world sizes that divide it read least.
        decode_threads: Threads per process; by default its share of the cores.
        frame_cache_bytes: RAM for decoded frames per rank, a number or a text such as "2GiB".
        depth_output_unit: "mm" or "m".
        on_bad_episode: "raise", or "quarantine" to go on without it.
        token: Hub token.
        storage_options: Passed to the fsspec filesystem of a URL.
    """

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
        streaming: bool = True,
        episode_pool_size: int = config.EPISODE_POOL_SIZE,
        buffer_size: int | None = None,
        max_num_shards: int | None = None,
        seed: int = 42,
        rng: Any = None,
        shuffle: bool = True,
        return_uint8: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        video_decoder_cache_size: int | None = None,
        data_files_root: str | Path | None = None,
        video_decode_device: str = "cpu",
        prefetch_videos: bool = True,
        video_prefetch_workers: int | None = None,
        *,
        episode_filter: EpisodeFilter | None = None,
        camera_keys: Sequence[str] | None = None,
        lanes: int | None = None,
        decode_threads: int | None = None,
        frame_cache_bytes: int | str = config.FRAME_CACHE_BYTES,
        depth_output_unit: str = "mm",
        on_bad_episode: str = "raise",
        token: str | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        warn_of_deprecated(
            buffer_size=buffer_size,
            rng=rng,
            max_num_shards=max_num_shards,
            video_prefetch_workers=video_prefetch_workers,
        )
        check_options(streaming=streaming, video_decode_device=video_decode_device)
        self.repo_id = repo_id
        self.meta = LeRobotDatasetMetadata(
            repo_id, root, revision, force_cache_sync, token=token, storage_options=storage_options
        )
        self.meta.ensure_readable()
        self.meta.rescale_depth_stats(depth_output_unit)
        if data_files_root is not None:
            self.meta.location = as_location(data_files_root, storage_options)
        chosen = select_episodes(self.meta, episodes, episode_filter)
        self._selection = FrameSelection(self.meta, chosen)
        self._spec = make_spec(
            self.meta,
            camera_keys=camera_keys,
            delta_timestamps=delta_timestamps,
            tolerance_s=tolerance_s,
            return_uint8=return_uint8,
            depth_output_unit=depth_output_unit,
            image_transforms=image_transforms,
        )
        self.rank = discover_rank(rank, world_size)
        self.seed = seed
        self.shuffle = shuffle
        self.episode_pool_size = episode_pool_size or config.EPISODE_POOL_SIZE
        self.lanes = choose_lanes(lanes, self.rank.world_size, shuffle=shuffle)
        self._lanes_are_given = lanes is not None
        self.quarantine = Quarantine(on_bad_episode)
        self.prefetch_videos = prefetch_videos
        max_files = video_decoder_cache_size or config.VIDEO_DECODER_CACHE_SIZE
        budgets = Budgets(decode_threads, config.parse_bytes(frame_cache_bytes), max_files)
        self.workshops = self._open_workshops(budgets)
        self.epochs = EpochCounter()
        self._plan: EpochPlan | None = None
        self._iterating: SampleIterator | None = None

    def _open_workshops(self, budgets: Budgets) -> WorkshopKeeper:
        return WorkshopKeeper(self.meta, self._spec, self.quarantine, budgets, self.num_frames)

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

    def __len__(self) -> int:
        """Return how many samples this rank delivers in an epoch."""
        return -(-self.num_frames // self.rank.world_size)

    @property
    def sample_bytes(self) -> int:
        """Bytes of the arrays of one sample."""
        return SampleLayout(self.meta, self._spec).nbytes

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch."""
        if self._plan is None:
            self._plan = EpochPlan(
                self._selection.lengths,
                episodes=self._selection.episodes,
                seed=self.seed,
                epoch=epoch,
                lanes=self.lanes,
                pool_size=self.episode_pool_size,
                shuffle=self.shuffle,
            )
        if self._plan.epoch != epoch:
            self._plan = self._plan.replace(epoch=epoch)
        return self._plan

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin `epoch`; without it epochs follow each other."""
        self.epochs.set(epoch)

    def __iter__(self) -> SampleIterator:
        worker, num_workers = worker_place()
        begin = self.epochs.begin(worker)
        progress = plain_loader_progress(
            begin.batches,
            begin.batch_size,
            samples=len(self),
            worker=worker,
            num_workers=num_workers,
        )
        first = begin.lap == 0
        self._iterating = SampleIterator(
            self.plan(begin.epoch + progress.epochs),
            rank=self.rank,
            role=(progress.role if first else worker, num_workers),
            start=begin.position,
            skipped=progress.samples if first else 0,
            shop=self.workshops.open(1, _SAMPLES_AHEAD),
            depth=_SAMPLES_AHEAD if self.prefetch_videos else 1,
            on_load=lambda epoch: self.epochs.rebase(epoch, begin.lap),
        )
        return self._iterating

    def state_dict(self) -> dict[str, Any]:
        """Return where this process's own iteration stands; StreamingDataLoader has its own state.

        Exact when the dataset is iterated in this process. Worker processes of a plain DataLoader
        cannot be seen from here, so after they have begun this raises StateError.
        """
        if get_worker_info() is not None:
            return {_IN_WORKER: True}  # a worker's place is in the state of its iterator
        epoch, position = self.epochs.peek()
        if self._iterating is not None:
            epoch, position = self._iterating.cursor()
        elif self.epochs.started():
            raise StateError(
                "the samples were delivered by worker processes of a plain DataLoader, whose "
                "progress the dataset cannot see. Use StreamingDataLoader, or torchdata's "
                "StatefulDataLoader, and save its state; or save {'batches_consumed': n, "
                "'batch_size': b} and load that."
            )
        plan = self.quarantine.plan_of(self.plan(epoch))
        return capture_state(plan, position, fingerprint=self.meta.fingerprint).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state stands, on any number of ranks and workers.

        Takes a state of this class or of StreamingDataLoader, or {"batches_consumed",
        "batch_size"}, the batches each rank has taken from a plain DataLoader with as many workers.
        """
        if _IN_WORKER in state:
            return
        self._iterating = None
        if "batches_consumed" in state:
            batches, batch_size = batches_of(state)
            self.epochs.skip_batches(batches, batch_size)
            return
        parsed = parse_state(state)
        if not self._lanes_are_given and parsed.lanes != self.lanes:
            # The default follows the world size, which may have changed since the state was saved.
            self.lanes = choose_lanes(parsed.lanes, self.rank.world_size, shuffle=self.shuffle)
            self._plan = None
        check_state(parsed, self.plan(parsed.epoch), fingerprint=self.meta.fingerprint)
        self.quarantine.merge(dict.fromkeys(parsed.quarantined, "set aside by an earlier run"))
        self.epochs.set(parsed.epoch, parsed.position)

    def video_decoder_cache_stats(self) -> dict[str, float]:
        """Return hits, misses, evictions and hit rate of the open video files, over all workers."""
        stats = self.workshops.stats()
        counts = {name: stats[f"file_{name}"] for name in ("hits", "misses", "evictions")}
        return counts | {"hit_rate": round(stats["file_hit_rate"], 4)}

    def timing_stats(self) -> dict[str, float]:
        """Return the seconds all workers' threads spent in each kind of work."""
        stats = self.workshops.stats()
        return {f"{kind}_s_total": stats[f"{kind}_s"] for kind in _WORK}

    def close(self) -> None:
        """Close what this process keeps open; the next iterator opens it again."""
        self.workshops.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plan": None, "_iterating": None}
