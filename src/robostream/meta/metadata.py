# SPDX-License-Identifier: Apache-2.0
"""`LeRobotDatasetMetadata`: everything under meta/, under LeRobot's names."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from robostream import arguments, config
from robostream.errors import (
    DataFileError,
    MetadataError,
    MissingFileError,
    SelectionError,
    call_user,
)
from robostream.meta.episodes import (
    EpisodeTable,
    empty_episodes,
    load_episodes,
    report_contradiction,
)
from robostream.meta.features import LANGUAGE_KEYS, Features, resized
from robostream.meta.info import SAY_TOOL, DatasetInfo, parse_info
from robostream.meta.locate import (
    explain_empty,
    explain_missing,
    locate_dataset,
    storage_errors_as_metadata_errors,
)
from robostream.meta.parquet import OpenParquet, TaskTable, read_tasks
from robostream.meta.stats import Stats, load_stats, rescale_depth
from robostream.storage import (
    CacheSettings,
    FileOpener,
    Location,
    explicit_root,
    redact,
    write_bytes_atomic,
)


def forward(path: str, doc: str) -> Any:
    """Return a read-only property that is an attribute of an attribute, such as "meta.fps"."""
    return property(attrgetter(path), doc=doc)


class LeRobotDatasetMetadata:
    """The metadata of a LeRobot dataset (v2.0, v2.1 or v3.0), read from meta/ alone.

    Args:
        repo_id: The dataset's name. With `root` given it is only a name. Without `root`, the
            dataset is searched as a folder here (unless there is a `revision`), in
            `HF_LEROBOT_HOME`, then on the Hub. A path or an fsspec URL works too.
        root: The dataset's folder, or an fsspec URL of it (`s3://…`, `hf://buckets/…`, …).
        revision: Branch, tag or commit on the Hub; the attribute holds the pinned commit.
        force_cache_sync: Whether to download files again that the Hub cache already holds.
        token: Hub token; by default the one that `hf auth login` stored.
        storage_options: Options of the store of a URL: keys, tokens, its endpoint.
        cache: The disk cache of remote files; None for no cache.

    Attributes:
        repo_id: The dataset's name, without secrets if it is a URL.
        root: The folder that holds meta/, or its URL.
        revision: The pinned commit, for a dataset on the Hub.
        info: The content of info.json.
        tasks: The task texts.
        episodes: The episode table: a row for each episode.
        stats: The statistics of each feature over all frames; None if the dataset has none.
    """

    url_root: Final[str] = forward("_location.url", "The URL of the folder of data/ and videos/.")
    fps: Final[int] = forward("info.fps", "Frames per second of all episodes.")
    robot_type: Final[str | None] = forward(
        "info.robot_type", "The robot the data was recorded on."
    )
    data_path: Final[str] = forward("info.data_path", "The template of Parquet paths.")
    video_path: Final[str | None] = forward("info.video_path", "The template of MP4 paths.")
    video_keys: Final[list[str]] = forward("info.video_keys", "Cameras stored as MP4.")
    image_keys: Final[list[str]] = forward(
        "info.image_keys", "Cameras stored as images inside Parquet."
    )
    camera_keys: Final[list[str]] = forward("info.camera_keys", "All cameras.")
    depth_keys: Final[list[str]] = forward("info.depth_keys", "Cameras that measure distance.")
    total_episodes: Final[int] = forward("info.total_episodes", "Number of episodes.")
    total_frames: Final[int] = forward("info.total_frames", "Number of frames of all episodes.")
    total_tasks: Final[int] = forward("info.total_tasks", "Number of task texts.")
    chunks_size: Final[int] = forward("info.chunks_size", "The most files in one chunk folder.")
    data_files_size_in_mb: Final[float] = forward(
        "info.data_files_size_in_mb", "The size at which a recorder begins a new Parquet file."
    )
    video_files_size_in_mb: Final[float] = forward(
        "info.video_files_size_in_mb", "The size at which a recorder begins a new MP4 file."
    )

    _resized: Features | None = None

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        revision: str | None = None,
        force_cache_sync: bool = False,
        *,
        token: str | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: CacheSettings | None = None,
    ) -> None:
        self.repo_id: str = redact(arguments.dataset_name(repo_id))
        # A revision, or a forced download, means the Hub.
        looks_here = revision is None and not force_cache_sync
        self._meta_location, self._location, pinned = locate_dataset(
            self.repo_id,
            root or explicit_root(repo_id, looks_here=looks_here),
            revision,
            force=force_cache_sync,
            token=token,
            options=storage_options,
            cache=cache,
        )
        self.revision: str | None = pinned
        place = self._meta_location
        self.root: Path | str = place.local_root or place.url
        with storage_errors_as_metadata_errors():
            opener = FileOpener(place)
            self.info: DatasetInfo = self._load_info(opener)
            self.episodes: EpisodeTable = self._load_episodes(opener)
            self.tasks: TaskTable = self._load_tasks(opener)
            if not self.info.is_v2:
                self.stats = load_stats(opener)

    def __bool__(self) -> bool:
        return True  # policies ask `if ds_meta:`; an empty dataset still has metadata

    def __repr__(self) -> str:
        return (
            f"LeRobotDatasetMetadata({self.repo_id!r}, episodes={self.total_episodes}, "
            f"frames={self.total_frames}, fps={self.fps}, cameras={self.camera_keys})"
        )

    @property
    def features(self) -> Features:
        """All features as info.json declares them, with the shapes of resized cameras."""
        return self._resized or self.info.features

    @functools.cached_property
    def stats(self) -> Stats | None:
        """The statistics of each feature over all episodes; None if the dataset has none.

        Those of v2.1 are read on first use: they are stored per episode, in a large file.
        """
        from robostream.meta.v2 import load_v2_stats  # workers do not need it

        with storage_errors_as_metadata_errors():
            return load_v2_stats(FileOpener(self._meta_location), self.info)

    @property
    def has_language_columns(self) -> bool:
        """Whether language annotations are declared."""
        entries = self.features.items()
        return any(key in LANGUAGE_KEYS or e["dtype"] == "language" for key, e in entries)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The schemas of functions that a language model may call; by default "say" alone."""
        return self.info.tools if self.info.tools is not None else [SAY_TOOL]

    @property
    def names(self) -> dict[str, Any]:
        """The names of each feature's axes or entries."""
        return {key: entry["names"] for key, entry in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each feature."""
        return {key: tuple(entry["shape"]) for key, entry in self.features.items()}

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of fps, features, tasks and the episode table, equal for every copy.

        That of a v2.x dataset begins with its version, and differs from that of its conversion.
        States and caches carry it, so that they are not used with another dataset. It does not
        cover rows and frames: a cache of those must also identify their files.
        """
        declared = self.info.features.items()
        content = {
            "fps": self.fps,
            "features": {key: [entry["dtype"], list(entry["shape"])] for key, entry in declared},
            "tasks": list(self.tasks),
            "episodes": self.episodes.digest(),
        }
        text = json.dumps(content, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return f"{self.info.codebase_version}-{digest}" if self.info.is_v2 else digest

    def get_data_file_path(self, ep_index: int) -> Path:
        """Return the Parquet file of an episode, relative to the root."""
        return Path(self.info.data_file(*self._file_numbers("data", ep_index)))

    def get_video_file_path(self, ep_index: int, vid_key: str) -> Path:
        """Return the MP4 file of an episode's camera, relative to the root."""
        if vid_key not in self.video_keys:
            raise SelectionError(
                f"{vid_key!r} is no video of {self.repo_id}; its videos are {self.video_keys}"
            )
        numbers = self._file_numbers(f"videos/{vid_key}", ep_index)
        return Path(self.info.video_file(vid_key, *numbers))

    def get_task_index(self, task: str) -> int | None:
        """Return the task_index of a text, or None if the dataset has no such task."""
        return self.tasks.find(task)

    def filter_episodes(self, episode_filter: Callable[[dict[str, Any]], bool]) -> list[int]:
        """Return the episodes whose row (a dict without statistics) passes the filter, sorted."""
        passes = functools.partial(call_user, "episode_filter", episode_filter)
        chosen = [row["episode_index"] for row in self.episodes if passes(row)]
        if not chosen:
            raise SelectionError(
                f"the episode_filter accepts none of the {len(self.episodes)} episodes of "
                f"{self.repo_id}. Its argument is a row such as "
                f"{self.episodes[0] if len(self.episodes) else {}}"
            )
        return chosen

    def ensure_readable(self) -> None:
        """Raise MetadataError unless there is an episode to read."""
        if self.total_episodes == 0:
            raise MetadataError(
                f"{self.root}: the dataset has no episodes. {explain_empty(self.root)}"
            )

    def rescale_depth_stats(self, unit: str) -> None:
        """Convert the statistics of depth cameras to "m" or "mm"."""
        if self.depth_keys and self.stats is not None:
            self.stats = rescale_depth(self.stats, self.features, unit)

    def _resize_cameras(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        declared = self.info.features
        self._resized = declared | {key: resized(declared[key], sizes[key]) for key in sizes}

    def get_chunk_settings(self) -> dict[str, float]:
        """Return the size limits that a recorder follows."""
        names = ("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb")
        return {name: getattr(self, name) for name in names}

    def update_chunk_settings(
        self,
        chunks_size: int | None = None,
        data_files_size_in_mb: float | None = None,
        video_files_size_in_mb: float | None = None,
    ) -> None:
        """Change the size limits, in info.json too (local datasets only)."""
        if not isinstance(self.root, Path):
            raise MetadataError(f"{self.root}: only a local info.json can be changed")
        if self.info.is_v2:
            version = self.info.codebase_version
            raise MetadataError(
                f"{self.root}: a dataset of {version} cannot be recorded into, so its limits stay. "
                "Convert it to v3.0 first, with `robostream convert`."
            )
        given = chunks_size, data_files_size_in_mb, video_files_size_in_mb
        limits = zip(self.get_chunk_settings(), given, strict=True)
        changes: dict[str, Any] = {name: limit for name, limit in limits if limit is not None}
        info = dataclasses.replace(self.info, **changes)
        info.check("update_chunk_settings")
        write_bytes_atomic(self.root / config.INFO_PATH, info.to_json().encode())
        self.info = info

    def _load_info(self, opener: FileOpener) -> DatasetInfo:
        where = f"{self.root}/{config.INFO_PATH}"
        try:
            return parse_info(opener.read_json(config.INFO_PATH), where)
        except MissingFileError:
            raise MetadataError(
                f"{where}: not found, so this is no LeRobot dataset. {explain_missing(self.root)}"
            ) from None

    def _load_tasks(self, opener: FileOpener) -> TaskTable:
        if self.info.is_v2:
            from robostream.meta.v2 import load_v2_tasks

            return load_v2_tasks(opener, self.episodes)
        if self.total_tasks == 0:
            return TaskTable()
        source = opener.open(config.TASKS_PATH)
        try:
            with OpenParquet(source, at_once=True) as file:
                return read_tasks(file, source.name)
        except DataFileError as error:
            if not isinstance(error.__cause__, MissingFileError):
                raise
            raise MetadataError(
                f"{source.name}: not found, though info.json counts {self.total_tasks} tasks. Copy "
                "the whole meta/ folder."
            ) from error

    def _load_episodes(self, opener: FileOpener) -> EpisodeTable:
        if self.total_episodes == 0:
            return empty_episodes()
        if self.info.is_v2:
            from robostream.meta.v2 import load_v2_episodes

            table = load_v2_episodes(opener, self.info)
        else:
            table = load_episodes(opener, self.video_keys, self.total_episodes)
        frames = int(table["length"].sum())
        if (len(table), frames) != (self.total_episodes, self.total_frames):
            file, cure = config.V2_EPISODES_PATH, "correct the numbers in info.json."
            if not self.info.is_v2:
                ending = "bring it to its end with LeRobotDataset.resume(...).finalize()."
                file, cure = "meta/episodes", f"if a recording was interrupted, {ending}"
            report_contradiction(
                MetadataError(
                    f"{self.root}: info.json counts {self.total_episodes} episodes and "
                    f"{self.total_frames} frames, but {file} holds {len(table)} and {frames}. Copy "
                    f"meta/ again; or, {cure}"
                )
            )
        return table

    def _file_numbers(self, prefix: str, episode: int) -> tuple[int, int]:
        """Return the chunk and file numbers of an episode's rows, or of its video."""
        if not 0 <= episode < len(self.episodes):
            raise SelectionError(
                f"episode {episode} does not exist; {self.repo_id} has {len(self.episodes)}, "
                "numbered from 0"
            )
        return (
            int(self.episodes[f"{prefix}/chunk_index"][episode]),
            int(self.episodes[f"{prefix}/file_index"][episode]),
        )


def location_of(meta: LeRobotDatasetMetadata) -> Location:
    """Return the location of data/ and videos/, unless the user gives another."""
    return meta._location


def resize_cameras(meta: LeRobotDatasetMetadata, sizes: Mapping[str, tuple[int, int]]) -> None:
    """Declare cameras as resized to (height, width) in `features`, but not in `info`."""
    meta._resize_cameras(sizes)
