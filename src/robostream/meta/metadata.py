# SPDX-License-Identifier: Apache-2.0
"""`LeRobotDatasetMetadata`: everything under meta/, named as LeRobot users know it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robostream import arguments, config
from robostream.errors import (
    DataFileError,
    MetadataError,
    MissingFileError,
    SelectionError,
    call_user,
)
from robostream.meta.episodes import EpisodeTable, empty_episodes, load_episodes
from robostream.meta.features import LANGUAGE_KEYS, Features, keys_of_dtype, resized
from robostream.meta.info import SAY_TOOL, DatasetInfo, parse_info
from robostream.meta.missing import explain_empty, explain_missing, explain_no_folder
from robostream.meta.parquet import open_parquet
from robostream.meta.pinning import as_metadata_error, pin_and_download
from robostream.meta.stats import Stats, parse_stats, rescale_depth
from robostream.meta.tasks import TaskTable, read_tasks
from robostream.storage import (
    CacheSettings,
    FileOpener,
    Location,
    as_location,
    explicit_root,
    parse_repo_url,
    redact,
    write_bytes_atomic,
)


class LeRobotDatasetMetadata:
    """What a LeRobot v3.0 dataset holds, read from meta/ alone.

    Args:
        repo_id: The dataset's name. With `root` given it is only a name; without, it is looked for
            as a folder here (unless there is a `revision`) and in `HF_LEROBOT_HOME`, then on the
            Hub. A path or an fsspec URL works too.
        root: The dataset's folder, or an fsspec URL of it (`s3://…`, `hf://buckets/…`, …).
        revision: Branch, tag or commit on the Hub; the attribute holds the pinned commit.
        force_cache_sync: Download again what the Hub cache already holds.
        token: Hub token; by default the one `hf auth login` stored.
        storage_options: What the store of a URL is opened with: keys, tokens, its address.
        cache: Where bytes of a URL's files are kept; None for nowhere.
    """

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
        self.repo_id = redact(arguments.dataset_name(repo_id))
        self.revision = revision
        meta_location, self._location = self._locate(
            # Who asks for a revision, or for a download, means the Hub.
            root or explicit_root(repo_id, looks_here=revision is None and not force_cache_sync),
            force=force_cache_sync,
            token=token,
            options=storage_options,
            cache=cache,
        )
        self.root: Path | str = meta_location.local_root or meta_location.url
        with as_metadata_error():
            door = FileOpener(meta_location)
            self.info = self._load_info(door)
            self.tasks = self._load_tasks(door)
            self.episodes = self._load_episodes(door)
            self.stats = self._load_stats(door)

    def __bool__(self) -> bool:
        return True  # policies ask `if ds_meta:`; an empty dataset still has metadata

    def __repr__(self) -> str:
        return (
            f"LeRobotDatasetMetadata({self.repo_id!r}, episodes={self.total_episodes}, "
            f"frames={self.total_frames}, fps={self.fps}, cameras={self.camera_keys})"
        )

    @property
    def url_root(self) -> str:
        """The address under which data/ and videos/ lie."""
        return self._location.url

    @property
    def fps(self) -> int:
        """Frames per second of all episodes."""
        return self.info.fps

    @property
    def features(self) -> Features:
        """All features, as info.json declares them; the shapes of cameras as they are resized."""
        return self._resized or self.info.features

    @property
    def robot_type(self) -> str | None:
        """The robot the data was recorded on."""
        return self.info.robot_type

    @property
    def data_path(self) -> str:
        """The template of Parquet paths."""
        return self.info.data_path

    @property
    def video_path(self) -> str | None:
        """The template of MP4 paths."""
        return self.info.video_path

    @property
    def video_keys(self) -> list[str]:
        """Cameras stored as MP4."""
        return self.info.video_keys

    @property
    def image_keys(self) -> list[str]:
        """Cameras stored as pictures inside Parquet."""
        return self.info.image_keys

    @property
    def camera_keys(self) -> list[str]:
        """All cameras."""
        return self.info.camera_keys

    @property
    def depth_keys(self) -> list[str]:
        """Cameras that measure distance."""
        return self.info.depth_keys

    @property
    def has_language_columns(self) -> bool:
        """Whether language annotations are declared."""
        return any(key in self.features for key in LANGUAGE_KEYS) or bool(
            keys_of_dtype(self.features, ["language"])
        )

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The function schemas a language model may call; by default one that says a text."""
        return self.info.tools if self.info.tools is not None else [SAY_TOOL]

    @property
    def names(self) -> dict[str, Any]:
        """The names of each feature's axes or entries."""
        return {key: entry["names"] for key, entry in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each feature."""
        return {key: tuple(entry["shape"]) for key, entry in self.features.items()}

    @property
    def total_episodes(self) -> int:
        """Number of episodes."""
        return self.info.total_episodes

    @property
    def total_frames(self) -> int:
        """Number of frames of all episodes."""
        return self.info.total_frames

    @property
    def total_tasks(self) -> int:
        """Number of task texts."""
        return self.info.total_tasks

    @property
    def chunks_size(self) -> int:
        """Most files in one chunk folder."""
        return self.info.chunks_size

    @property
    def data_files_size_in_mb(self) -> float:
        """Size at which a recorder begins a new Parquet file."""
        return self.info.data_files_size_in_mb

    @property
    def video_files_size_in_mb(self) -> float:
        """Size at which a recorder begins a new MP4 file."""
        return self.info.video_files_size_in_mb

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of what the dataset holds and where, the same for every copy of it.

        States and caches carry it, so that they are not used with a dataset that differs in it. It
        knows nothing of rows and pictures: what keeps those must know their files, too.
        """
        content = {
            "fps": self.fps,
            "features": {
                key: [entry["dtype"], list(entry["shape"])]
                for key, entry in self.info.features.items()
            },
            "tasks": list(self.tasks),
            "episodes": self.episodes.digest(),
        }
        return hashlib.blake2b(
            json.dumps(content, sort_keys=True).encode(), digest_size=16
        ).hexdigest()

    def get_data_file_path(self, ep_index: int) -> Path:
        """Return the Parquet file of an episode, relative to the root."""
        chunk, file = self._file_numbers("data", ep_index)
        return Path(self.data_path.format(chunk_index=chunk, file_index=file))

    def get_video_file_path(self, ep_index: int, vid_key: str) -> Path:
        """Return the MP4 file of an episode's camera, relative to the root."""
        if vid_key not in self.video_keys:
            raise SelectionError(
                f"{vid_key!r} is no video of {self.repo_id}; its videos are {self.video_keys}"
            )
        chunk, file = self._file_numbers(f"videos/{vid_key}", ep_index)
        assert self.video_path is not None  # DatasetInfo.check: videos have a path
        return Path(self.video_path.format(video_key=vid_key, chunk_index=chunk, file_index=file))

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
        """Bring the statistics of depth cameras to "m" or "mm"."""
        if self.stats is not None:
            self.stats = rescale_depth(self.stats, self.features, unit)

    def _resize_cameras(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        declared = self.info.features
        self._resized = declared | {key: resized(declared[key], sizes[key]) for key in sizes}

    def get_chunk_settings(self) -> dict[str, float]:
        """Return the size rules a recorder follows."""
        return {
            "chunks_size": self.chunks_size,
            "data_files_size_in_mb": self.data_files_size_in_mb,
            "video_files_size_in_mb": self.video_files_size_in_mb,
        }

    def update_chunk_settings(
        self,
        chunks_size: int | None = None,
        data_files_size_in_mb: float | None = None,
        video_files_size_in_mb: float | None = None,
    ) -> None:
        """Change the size rules, in info.json too (local datasets only)."""
        if not isinstance(self.root, Path):
            raise MetadataError(f"{self.root}: only a local info.json can be changed")
        given = {
            "chunks_size": chunks_size,
            "data_files_size_in_mb": data_files_size_in_mb,
            "video_files_size_in_mb": video_files_size_in_mb,
        }
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        info = dataclasses.replace(self.info, **changes)
        info.check("update_chunk_settings")
        write_bytes_atomic(self.root / config.INFO_PATH, info.to_json().encode())
        self.info = info

    def _locate(
        self,
        root: str | Path | None,
        *,
        force: bool,
        token: str | None,
        options: dict[str, Any] | None,
        cache: CacheSettings | None,
    ) -> tuple[Location, Location]:
        repo = None if root is None else parse_repo_url(str(root))
        if root is None:
            local = config.lerobot_home() / self.repo_id
            if (local / config.INFO_PATH).is_file() and not _is_old_mirror(local):
                root = local
        if root is not None and repo is None:
            location = as_location(root, options, cache)
            return location, location
        repo_id, revision = repo or (self.repo_id, None)
        try:
            folder, self.revision = pin_and_download(
                repo_id, revision or self.revision, patterns=["meta/**"], token=token, force=force
            )
        except MetadataError as error:
            if repo is not None or self.revision is not None:
                raise
            raise MetadataError(f"{error} {explain_no_folder(repo_id)}") from error.__cause__
        access = {} if token is None else {"token": token}
        url = f"hf://datasets/{repo_id}@{self.revision}"
        return as_location(folder), Location(url, access | (options or {}), cache)

    def _read(self, door: FileOpener, relative: str) -> bytes | None:
        try:
            limit = config.json_limit_bytes()
            return door.read_file(relative, max_bytes=limit, setting=config.JSON_LIMIT_NAME)
        except MissingFileError:
            return None

    def _load_info(self, door: FileOpener) -> DatasetInfo:
        where = f"{self.root}/{config.INFO_PATH}"
        text = self._read(door, config.INFO_PATH)
        if text is None:
            raise MetadataError(
                f"{where}: not found, so this is no LeRobot dataset. {explain_missing(self.root)}"
            )
        return parse_info(text, where)

    def _load_tasks(self, door: FileOpener) -> TaskTable:
        if self.total_tasks == 0:
            return TaskTable()
        source = door.open(config.TASKS_PATH)
        try:
            with open_parquet(source, at_once=True) as file:
                return read_tasks(file, source.name)
        except DataFileError as error:
            if not isinstance(error.__cause__, MissingFileError):
                raise
            raise MetadataError(
                f"{source.name}: not found, though info.json counts {self.total_tasks} tasks. Copy "
                "the whole meta/ folder."
            ) from error

    def _load_episodes(self, door: FileOpener) -> EpisodeTable:
        if self.total_episodes == 0:
            return empty_episodes()
        table = load_episodes(door, self.video_keys, self.total_episodes)
        frames = int(table["length"].sum())
        if (len(table), frames) != (self.total_episodes, self.total_frames):
            raise MetadataError(
                f"{self.root}: info.json counts {self.total_episodes} episodes and "
                f"{self.total_frames} frames, but meta/episodes holds {len(table)} and {frames}. "
                "Copy meta/ again; or, if a recording was interrupted, bring it to its end with "
                "LeRobotDataset.resume(...).finalize()."
            )
        return table

    def _load_stats(self, door: FileOpener) -> Stats | None:
        text = self._read(door, config.STATS_PATH)
        if text is None:
            return None
        return parse_stats(text, f"{self.root}/{config.STATS_PATH}")

    def _file_numbers(self, prefix: str, episode: int) -> tuple[int, int]:
        """Return the chunk and the number of the file an episode's rows, or pictures, lie in."""
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
    """Return where data/ and videos/ of a dataset lie, unless the user says otherwise."""
    return meta._location


def resize_cameras(meta: LeRobotDatasetMetadata, sizes: Mapping[str, tuple[int, int]]) -> None:
    """Declare cameras as resized to (height, width) in `features`, but not in `info`."""
    meta._resize_cameras(sizes)


def _is_old_mirror(folder: Path) -> bool:
    # An early LeRobot mixed revisions in such folders; they are ignored unless asked for by root.
    return (folder / ".cache" / "huggingface" / "download").is_dir()
