# SPDX-License-Identifier: Apache-2.0
"""An opened dataset: its metadata, its files, the selected frames, and what a sample holds.

Everything that reads samples is made from an `OpenedDataset`. An episode's number means something
only within its dataset, so no reader shares a cache with the reader of another dataset under that
number alone.

The episode table gives the span of each episode in a camera's video file, in seconds. A span must
be as long as its episode, and the file must have a frame at each time in it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.assemble.selection import FrameSelection, keep_frames, select_episodes
from robostream.assemble.spec import Offsets, SampleOptions, SampleSpec, make_spec
from robostream.byte_sizes import parse_bytes
from robostream.decode import VideoFile, VideoFiles, needed_frames, packet_span
from robostream.errors import FrameTimestampError, MetadataError
from robostream.meta import (
    LeRobotDatasetMetadata,
    location_of,
    pin_and_download,
    resize_cameras,
)
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

logger = logging.getLogger(__name__)

Seconds = npt.NDArray[np.float64]

# A recorder measures the end of a span in the encoded file, whose last frame may last a bit more
# or less than 1 / fps. A whole frame too many or too few is an error.
_SLACK_FRAMES = 0.9
_SAME_FRAMES = 0.1


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
        """Return a camera's video file of an episode, and the number in it of every frame.

        Frame f has the time f / fps after the start of the episode's span. The reader of the rows
        checks their timestamps against the same times.
        """
        meta, tolerance_s, where = self.meta, self.spec.tolerance_s, f"{key}, episode {episode}"
        file = files.get(meta.get_video_file_path(episode, key).as_posix())
        starts_s, stops_s = _spans(meta, key)
        start_s, stop_s = float(starts_s[episode]), float(stops_s[episode])
        length = int(meta.episodes["length"][episode])
        check_span(start_s, stop_s, length, meta.fps, f"{meta.root}/meta: {where}")
        times_s = start_s + np.arange(length) / meta.fps
        numbers = file.index.match(times_s, tolerance_s=tolerance_s, where=where)
        # The file must have frames from the start of its first span to the end of its last. One
        # that was cut or remuxed has them at other times: an episode in the middle would then get a
        # frame for each of its times, but of another moment.
        starts_s, stops_s = _file_spans(meta, key)
        start_s, stop_s = float(starts_s[episode]), float(stops_s[episode])
        first_s, last_s = file.index.times_s([0, -1]).tolist()
        slack = max(_SLACK_FRAMES, tolerance_s * meta.fps)
        if first_s > start_s + tolerance_s or (stop_s - last_s) * meta.fps - 1 > slack:
            raise FrameTimestampError(
                f"{where}: the episode table takes frames of {file.index.file} from {start_s:.6f} "
                f"s to before {stop_s:.6f} s; the file has frames from {first_s:.6f} s to "
                f"{last_s:.6f} s. Some were lost or moved, and which cannot be known. Copy the "
                "video and meta/ again."
            )
        return file, numbers

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
        _warn_of_overlaps(meta, key)
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


def find_byte_span(
    file: VideoFile, numbers: npt.NDArray[np.int64], first: int, stop: int, offsets: Offsets
) -> tuple[int, int]:
    """Return the bytes of an episode's frames [first, stop) and of their windows."""
    begin, end = needed_frames((first, stop - 1), offsets, len(numbers))
    return packet_span(file.index, numbers[begin:end])


def check_span(
    from_timestamp: float, to_timestamp: float, length: int, fps: float, where: str
) -> None:
    """Raise MetadataError unless the span holds `length` frames, give or take less than one. Pure.

    This finds a wrong fps, and a start or an end that is off by a frame. It cannot find a span that
    was moved as a whole. `where` names the table, the episode and the camera in the message.
    """
    seconds = to_timestamp - from_timestamp
    frames = seconds * fps
    if abs(frames - length) <= _SLACK_FRAMES:
        return
    cure = (
        "The episode table is damaged or was edited, or the video lacks frames: copy meta/ again, "
        "or leave the episode out (episodes=...)."
    )
    implied = length / seconds if seconds > 0 else 0.0
    # Some frames too many or too few are damage; a tenth of them is another rate.
    if abs(implied - fps) > 0.1 * fps and abs(implied - round(implied)) < 0.01 * implied:
        cure = f"It would fit at {round(implied)} fps: correct fps in info.json if it is wrong."
    raise MetadataError(
        f"{where}: from_timestamp {from_timestamp:.6g} s to to_timestamp {to_timestamp:.6g} s is "
        f"{frames:.6g} frames at {fps:g} fps, want the {length} of the episode. {cure}"
    )


def _warn_of_overlaps(meta: LeRobotDatasetMetadata, key: str) -> None:
    """Log a warning if spans of episodes overlap in a camera's files."""
    table = meta.episodes
    order = np.argsort(files := _file_ids(meta, key), kind="stable")
    order = order[table["length"][order] > 0]
    before, after = order[:-1], order[1:]
    stops_s, starts_s = table[f"videos/{key}/to_timestamp"], table[f"videos/{key}/from_timestamp"]
    is_early = starts_s[after] < stops_s[before] - _SLACK_FRAMES / meta.fps
    overlaps = np.flatnonzero(is_early & (files[before] == files[after]))
    if overlaps.size:
        first, second = int(before[overlaps[0]]), int(after[overlaps[0]])
        more = f", and {overlaps.size - 1} more such pairs" if overlaps.size > 1 else ""
        logger.warning(
            "%s: %s: episode %d begins at %.6g s of its video file, before episode %d ends at "
            "%.6g s%s. If these episodes are not meant to share frames, the episode table is "
            "damaged: copy meta/ again.",
            *(meta.repo_id, key, second, starts_s[second], first, stops_s[first], more),
        )


@functools.lru_cache(maxsize=64)
def _file_spans(meta: LeRobotDatasetMetadata, key: str) -> tuple[Seconds, Seconds]:
    """Return for each episode when the first span in its video file starts and the last ends."""
    starts_s, stops_s = _spans(meta, key)
    # A span of another length than its episode is an error of that episode alone.
    frames = (stops_s - starts_s) * meta.fps
    is_valid = np.abs(meta.episodes["length"] - frames) <= _SLACK_FRAMES
    files, file_of = np.unique(_file_ids(meta, key), return_inverse=True)
    first_s, last_s = np.full(len(files), np.inf), np.full(len(files), -np.inf)
    np.minimum.at(first_s, file_of[is_valid], starts_s[is_valid])
    np.maximum.at(last_s, file_of[is_valid], stops_s[is_valid])
    return first_s[file_of], last_s[file_of]


@functools.lru_cache(maxsize=64)
def _spans(meta: LeRobotDatasetMetadata, key: str) -> tuple[Seconds, Seconds]:
    """Return when the span of each episode starts, and when it stops: 1 / fps after its last frame.

    LeRobot writes this time, and never reads it. Some converters write the time of the last frame,
    which is accepted if all episodes have it.
    """
    starts_s, stops_s = (meta.episodes[f"videos/{key}/{end}_timestamp"] for end in ("from", "to"))
    frames_short = meta.episodes["length"] - (stops_s - starts_s) * meta.fps
    if np.all(np.abs(frames_short - 1) < _SAME_FRAMES):
        stops_s = stops_s + 1 / meta.fps
    return starts_s, stops_s


def _file_ids(meta: LeRobotDatasetMetadata, key: str) -> npt.NDArray[np.int64]:
    """Return a number for each episode that identifies its video file of a camera."""
    chunks = meta.episodes[f"videos/{key}/chunk_index"].astype(np.int64)
    numbers: npt.NDArray[np.int64] = chunks << 32 | meta.episodes[f"videos/{key}/file_index"]
    return numbers
