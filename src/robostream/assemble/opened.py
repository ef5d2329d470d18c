# SPDX-License-Identifier: Apache-2.0
"""An opened dataset: its metadata, its files, the selected frames, and what a sample holds.

Everything that reads samples is made from an `OpenedDataset`. An episode's number means something
only within its dataset, so no reader shares a cache with the reader of another dataset under that
number alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.assemble.selection import FrameSelection, keep_frames, select_episodes
from robostream.assemble.spec import SampleOptions, SampleSpec, make_spec
from robostream.assemble.video_spans import match_frames, warn_of_overlaps
from robostream.byte_sizes import parse_bytes
from robostream.decode import VideoFile, VideoFiles
from robostream.meta import LeRobotDatasetMetadata, location_of, pin_and_download, resize_cameras
from robostream.storage import (
    CacheSettings,
    FileOpener,
    Location,
    Traffic,
    as_location,
    parse_repo_url,
)

if TYPE_CHECKING:
    from robostream.plan import SelectedFrames


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """Where a dataset is, as the user gives it; see `LeRobotDatasetMetadata`."""

    repo_id: str  # the dataset's name, or a URL
    root: str | Path | None = None  # its folder or URL, where `repo_id` is only a name
    revision: str | None = None  # branch, tag or commit on the Hub
    # The folder of data/ and videos/, if it is not that of meta/.
    data_files_root: str | Path | None = None
    force_cache_sync: bool = False  # whether to download the metadata again
    token: str | None = field(default=None, repr=False)  # Hub token
    # Options of the store of a URL.
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    cache: CacheSettings | None = None  # the disk cache of remote files; None for no cache

    def __post_init__(self) -> None:
        arguments.path(self.root, "root")
        arguments.path(self.data_files_root, "data_files_root")
        arguments.truth(self.force_cache_sync, "force_cache_sync")
        arguments.of_kind(self.revision, "revision", str | None, "a text")
        # As in huggingface_hub: True is the stored token, False is no token.
        arguments.of_kind(self.token, "token", str | bool | None, "a text")
        by_name = "values by name (a dict)"
        arguments.of_kind(self.storage_options, "storage_options", Mapping | None, by_name)


@dataclass(frozen=True, slots=True)
class OpenedDataset:
    """The record from which every reader of samples is made."""

    meta: LeRobotDatasetMetadata
    files: Location  # the location of data/ and videos/
    selection: FrameSelection
    spec: SampleSpec
    opened_at_s: float  # the time of opening, in seconds since 1970
    # Which of their frames are delivered, and how often; None for all, once each.
    frames: SelectedFrames | None = None

    def file_opener(self, traffic: Traffic | None = None) -> FileOpener:
        """Return a new opener of data/ and videos/ for this process; see `FileOpener`."""
        # A file of v2.x has one episode, and all of it is read; one of v3.0 has many.
        whole_bytes = config.WHOLE_FILE_BYTES if self.meta.info.is_v2 else 0
        return FileOpener(self.files, whole_bytes=whole_bytes, traffic=traffic)

    @property
    def index_folder(self) -> Path | None:
        """The folder that caches video indices; None for a local dataset, whose index is near."""
        return config.index_home() / self.meta.fingerprint if self.files.is_remote else None

    def find_frames(
        self, files: VideoFiles, episode: int, key: str
    ) -> tuple[VideoFile, npt.NDArray[np.int64]]:
        """Return a camera's video file of an episode, and the number in it of every frame."""
        file = files.get(self.meta.get_video_file_path(episode, key).as_posix())
        tolerance_s = self.spec.tolerance_s
        return file, match_frames(self.meta, file.index, episode, key, tolerance_s=tolerance_s)

    def selected_files(self, *, videos: bool) -> list[str]:
        """Return the files of the selected episodes, each once, in the order episodes need them."""
        meta = self.meta
        keys = meta.video_keys if videos else []
        files: dict[str, None] = {}
        for episode in map(int, self.selection.episodes):
            files[meta.get_data_file_path(episode).as_posix()] = None
            for key in keys:
                files[meta.get_video_file_path(episode, key).as_posix()] = None
        return list(files)


def choose_cache(folder: str | Path | None, limit: int | str | None) -> CacheSettings | None:
    """Return the settings of the disk cache; None if the limit is 0.

    The default folder is in the user's cache folder.
    """
    limit = config.cache_limit_setting() if limit is None else limit
    if limit is not None and parse_bytes(limit) == 0:
        return None
    folder = arguments.path(folder, "cache_dir") or config.cache_home()
    return CacheSettings(Path(folder).expanduser().absolute(), limit)


def open_dataset(location: DatasetLocation, options: SampleOptions) -> OpenedDataset:
    """Return an opened dataset that has episodes, or raise. Reads only its metadata."""
    opened_at_s = time.time()
    meta = LeRobotDatasetMetadata(
        location.repo_id,
        location.root,
        location.revision,
        location.force_cache_sync,
        token=location.token,
        storage_options=location.storage_options,
        cache=location.cache,
    )
    meta.ensure_readable()
    meta.rescale_depth_stats(options.depth_output_unit)
    spec = make_spec(meta, options)
    resize_cameras(meta, spec.resize)
    for key in spec.videos:
        warn_of_overlaps(meta.episodes, key, meta.fps, meta.repo_id)
    files = location_of(meta)
    if location.data_files_root is not None:
        files = as_location(location.data_files_root, location.storage_options, location.cache)
    episodes = select_episodes(meta, options.episodes, options.episode_filter)
    kept = options.frames, options.stride, options.episode_weights
    frames = None if kept == (None, 1, None) else keep_frames(meta, episodes, *kept)
    return OpenedDataset(meta, files, FrameSelection(meta, episodes), spec, opened_at_s, frames)


def download_from_hub(
    dataset: OpenedDataset, *, videos: bool, token: str | None, force: bool
) -> OpenedDataset:
    """Return the dataset with files that support random access.

    Downloads the selected episodes' files of a Hub dataset, at the pinned commit. A local folder or
    a bucket is returned as it is.
    """
    repo = parse_repo_url(dataset.files.url)
    if repo is None:
        return dataset
    patterns = sorted(dataset.selected_files(videos=videos))
    folder, _ = pin_and_download(repo[0], repo[1], patterns=patterns, token=token, force=force)
    return replace(dataset, files=as_location(folder))
