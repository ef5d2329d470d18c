# SPDX-License-Identifier: Apache-2.0
"""`StreamingLeRobotDataset`: a LeRobot dataset as an ordered, resumable, distributed stream."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

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
from robostream.batches import probe_layout
from robostream.device import check_decode_device
from robostream.errors import SelectionError
from robostream.loader.cursor import BadEpisodes, StreamCursor, epochs_of, first_plan
from robostream.loader.position import discover_rank
from robostream.loader.resources import ResourceLimits
from robostream.loader.stream import FrameStream
from robostream.meta import Features, LeRobotDatasetMetadata, forward

_IGNORED = {
    "buffer_size": "frames are mixed over episode_pool_size episodes, with no buffer of samples",
    "rng": "the order is a function of seed and epoch",
    "max_num_shards": "the stream is not made of shards",
    "video_prefetch_workers": "num_workers of StreamingDataLoader says how many processes decode",
    "prefetch_videos": "worker processes always work ahead, by prefetch_factor batches",
    "decode_threads": "num_workers of StreamingDataLoader says how many processes decode, each "
    "with one thread",
}
# The arguments after force_cache_sync in the constructor of LeRobot's streaming dataset.
_LEROBOT_ORDER = (
    "streaming",
    "episode_pool_size",
    "buffer_size",
    "max_num_shards",
    "seed",
    "rng",
    "shuffle",
    "return_uint8",
    "rank",
    "world_size",
    "video_decoder_cache_size",
    "data_files_root",
    "video_decode_device",
    "prefetch_videos",
    "video_prefetch_workers",
)


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
        _refuse_positions(by_position)
        _accept_legacy(legacy)
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
            [dataset],
            functools.partial(probe_layout, dataset),
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


def _accept_legacy(given: Mapping[str, Any]) -> None:
    """Warn of each argument of another loader that has no effect here; refuse unknown names."""
    if not arguments.truth(given.get("streaming", True), "streaming"):
        raise SelectionError(
            "streaming=False: StreamingLeRobotDataset always streams; use LeRobotDataset for "
            "random access"
        )
    for name, value in given.items():
        if name not in ("streaming", *_IGNORED):
            raise TypeError(
                f"StreamingLeRobotDataset() got an unexpected keyword argument {name!r}"
            )
        if name in _IGNORED and value is not None:
            text = f"{name} is ignored: {_IGNORED[name]}"
            warnings.warn(text, DeprecationWarning, stacklevel=3)


def _refuse_positions(values: tuple[Any, ...]) -> None:
    """Raise TypeError, with the names, for keyword arguments given by position."""
    if values:
        names = ", ".join(f"{name}=" for name in _LEROBOT_ORDER[: len(values)])
        raise TypeError(
            f"StreamingLeRobotDataset() takes the arguments after force_cache_sync by name. In "
            f"LeRobot's order the values given here are {names}"
        )
