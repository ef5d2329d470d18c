# SPDX-License-Identifier: Apache-2.0
"""An opened dataset: what it holds, where its files are, what of it is read, and as what.

An episode's number means something only together with the dataset it is of. So whatever reads
episodes is made from one of these records, and keeps nothing under an episode's number alone that
another dataset's reader could see.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robostream import arguments, config
from robostream.assemble.selection import EpisodeFilter, FrameSelection, select_episodes
from robostream.assemble.spec import ImageTransforms, Resize, SampleSpec, make_spec
from robostream.byte_sizes import parse_bytes
from robostream.meta import LeRobotDatasetMetadata, location_of, resize_cameras, warn_of_overlaps
from robostream.storage import CacheSettings, FileOpener, Location, as_location


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """Where a dataset is, as a user says it; see `LeRobotDatasetMetadata`.

    Attributes:
        repo_id: The dataset's name, or a URL.
        root: Its folder or URL, where `repo_id` is only a name.
        revision: Branch, tag or commit on the Hub.
        data_files_root: Where data/ and videos/ lie, if not beside meta/.
        force_cache_sync: Download metadata again.
        token: Hub token.
        storage_options: What the store of a URL is opened with.
        cache: Where bytes of a URL's files are kept; None for nowhere.
    """

    repo_id: str
    root: str | Path | None = None
    revision: str | None = None
    data_files_root: str | Path | None = None
    force_cache_sync: bool = False
    token: str | None = field(default=None, repr=False)
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    cache: CacheSettings | None = None

    def __post_init__(self) -> None:
        arguments.path(self.root, "root")
        arguments.path(self.data_files_root, "data_files_root")
        arguments.truth(self.force_cache_sync, "force_cache_sync")
        arguments.of_kind(self.revision, "revision", str | None, "a text")
        # As in huggingface_hub: True is the one that was logged in with, False none.
        arguments.of_kind(self.token, "token", str | bool | None, "a text")
        by_name = "values by name (a dict)"
        arguments.of_kind(self.storage_options, "storage_options", Mapping | None, by_name)


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """What of a dataset is read, and as what; the arguments of `LeRobotDataset` by these names."""

    episodes: Sequence[int] | None = None
    episode_filter: EpisodeFilter | None = None
    camera_keys: Sequence[str] | None = None
    delta_timestamps: Mapping[str, Sequence[float]] | None = None
    tolerance_s: float = config.TOLERANCE_S
    return_uint8: bool = False
    depth_output_unit: str = "mm"
    image_transforms: ImageTransforms | None = None
    resize: Resize | None = None


@dataclass(frozen=True, slots=True)
class OpenedDataset:
    """What everything that reads samples of a dataset is made from.

    Attributes:
        meta: What the dataset holds.
        files: Where data/ and videos/ lie.
        selection: Which episodes and frames are read.
        spec: What a sample holds.
        opened_at_s: When this run opened it, in seconds since 1970.
    """

    meta: LeRobotDatasetMetadata
    files: Location
    selection: FrameSelection
    spec: SampleSpec
    opened_at_s: float

    def file_opener(self) -> FileOpener:
        """Return what opens files of data/ and videos/ in this process."""
        return FileOpener(self.files)

    @property
    def index_folder(self) -> Path | None:
        """Where the indices of a remote dataset's videos are kept.

        None for a local one, whose files' own tables are read within a millisecond.
        """
        return config.index_home() / self.meta.fingerprint if self.files.is_remote else None


def choose_cache(folder: str | Path | None, limit: int | str | None) -> CacheSettings | None:
    """Return where bytes of remote files are kept: by default in a folder of the user's cache.

    A limit of 0 is for keeping nothing.
    """
    limit = config.cache_limit_setting() if limit is None else limit
    if limit is not None and parse_bytes(limit) == 0:
        return None
    folder = arguments.path(folder, "cache_dir") or config.cache_home()
    return CacheSettings(Path(folder).expanduser().absolute(), limit)


def open_dataset(address: DatasetLocation, choice: SampleOptions) -> OpenedDataset:
    """Return a dataset that has episodes, or raise. Reads its metadata and nothing else."""
    opened_at_s = time.time()
    meta = LeRobotDatasetMetadata(
        address.repo_id,
        address.root,
        address.revision,
        address.force_cache_sync,
        token=address.token,
        storage_options=address.storage_options,
        cache=address.cache,
    )
    meta.ensure_readable()
    meta.rescale_depth_stats(choice.depth_output_unit)
    spec = make_spec(
        meta,
        camera_keys=choice.camera_keys,
        delta_timestamps=choice.delta_timestamps,
        tolerance_s=choice.tolerance_s,
        return_uint8=choice.return_uint8,
        depth_output_unit=choice.depth_output_unit,
        image_transforms=choice.image_transforms,
        resize=choice.resize,
    )
    resize_cameras(meta, spec.resize)
    for key in spec.videos:
        warn_of_overlaps(meta.episodes, key, meta.fps, meta.repo_id)
    files = location_of(meta)
    if address.data_files_root is not None:
        files = as_location(address.data_files_root, address.storage_options, address.cache)
    chosen = select_episodes(meta, choice.episodes, choice.episode_filter)
    return OpenedDataset(meta, files, FrameSelection(meta, chosen), spec, opened_at_s)
