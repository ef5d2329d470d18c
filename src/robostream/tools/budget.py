# SPDX-License-Identifier: Apache-2.0
"""Estimates of what a run needs, from its plan, its metadata and a listing of its files.

No data is read. Request counts are lower bounds: one per episode and video, one for an episode's
rows, two per file for its index. A lane is circular, so the episodes that are open where an epoch
enters it are read at the start and again at the end, unless the disk cache keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robostream import config
from robostream.errors import NoListingError
from robostream.meta import LeRobotDatasetMetadata, decoded_bytes, location_of
from robostream.plan import (
    LONG_GOP_FRAMES,
    CameraFrames,
    Cut,
    EpochPlan,
    dropped_frames,
    frame_memory,
    rank_lanes,
    steps_left,
)
from robostream.storage import FileOpener
from robostream.tools.shuffle_quality import (
    expected_distinct,
    resident_episodes,
    simulated_distinct,
    smallest_pool,
    uniform_distinct,
)

_MEGABYTE = 1024**2
_NOT_NUMBERS = ("video", "image", "string", "language")


@dataclass(frozen=True, slots=True)
class DatasetSizes:
    """Sizes of a dataset on disk and in memory.

    Attributes:
        num_videos: Cameras stored as MP4.
        opening_requests: Requests to open a file, besides those for an episode in it.
        measured: Whether the bytes are file sizes; if not, they are upper bounds from info.json.
        decoded_bytes_per_frame: Bytes of all cameras of one frame, as decoders return them.
        row_bytes_per_frame: Bytes of all numbers of one frame.
    """

    data_bytes: int
    video_bytes: int
    num_data_files: int
    num_video_files: int
    num_videos: int
    opening_requests: int
    measured: bool
    decoded_bytes_per_frame: int
    row_bytes_per_frame: int


@dataclass(frozen=True, slots=True)
class RunSteps:
    """The number of steps of a run.

    Attributes:
        per_epoch: Batches that every rank delivers in an epoch.
        total: Batches that every rank delivers in all epochs.
        epoch_s: Seconds that an epoch takes at the given consumption.
        dropped_frames: Frames of the tail that are not delivered, per epoch.
        repeated_frames: Frames delivered twice to complete the tail, per epoch.
    """

    per_epoch: int
    total: int
    epoch_s: float
    dropped_frames: int
    repeated_frames: int


@dataclass(frozen=True, slots=True)
class BatchMixing:
    """How many episodes a batch mixes.

    Attributes:
        window_frames: Frames mixed at a time in a lane.
        uniform: Expected distinct episodes in a global batch drawn from the whole dataset.
        expected: Expected distinct episodes in a global batch of this plan, in closed form.
        simulated: Distinct episodes in a global batch, counted in the order itself.
        per_rank: Distinct episodes in one rank's batch, counted in the order itself.
        wanted: The requested share of `uniform`.
        smallest_pool: The smallest pool that is expected to reach it.
    """

    window_frames: int
    uniform: float
    expected: float
    simulated: float
    per_rank: float
    wanted: float
    smallest_pool: int


@dataclass(frozen=True, slots=True)
class RankNeeds:
    """What one rank reads and keeps.

    Attributes:
        lanes: Lanes that the rank reads.
        readers: How many ranks read the same lanes.
        open_episodes: Mean number of episodes begun and not finished.
        open_episodes_most: The most of them found at a time.
        frame_cache_bytes: RAM with which every frame is decoded once, as the loader computes it.
        row_cache_bytes: RAM for the rows of the open episodes.
        disk_cache_bytes: Disk for the open episodes, so that each is fetched once.
    """

    lanes: int
    readers: int
    open_episodes: float
    open_episodes_most: int
    bytes_per_epoch: int
    bytes_per_s: float
    requests_per_epoch: int
    requests_per_s: float
    frame_cache_bytes: int
    row_cache_bytes: int
    disk_cache_bytes: int


def measure_dataset(meta: LeRobotDatasetMetadata) -> DatasetSizes:
    """Return the sizes of a dataset. Lists its folders, which may take a while on a network."""
    num_data_files = _num_files(meta, "data")
    num_video_files = sum(_num_files(meta, f"videos/{key}") for key in meta.video_keys)
    data = _file_sizes(meta, "data", ".parquet")
    videos = _file_sizes(meta, "videos", ".mp4") if meta.video_keys else []
    measured = len(data) >= num_data_files and len(videos) >= num_video_files
    # Small files of v2.x are fetched whole.
    largest = max(data + videos, default=0) if measured else 0
    is_whole = meta.info.is_v2 and largest <= config.WHOLE_FILE_BYTES
    if not measured:
        data = [int(meta.data_files_size_in_mb * _MEGABYTE)] * num_data_files
        videos = [int(meta.video_files_size_in_mb * _MEGABYTE)] * num_video_files
    return DatasetSizes(
        data_bytes=sum(data),
        video_bytes=sum(videos),
        num_data_files=num_data_files,
        num_video_files=num_video_files,
        num_videos=len(meta.video_keys),
        opening_requests=0 if is_whole else 2,
        measured=measured,
        decoded_bytes_per_frame=sum(decoded_bytes(meta.features[key]) for key in meta.camera_keys),
        row_bytes_per_frame=row_bytes(meta),
    )


def row_bytes(meta: LeRobotDatasetMetadata) -> int:
    """Return the bytes of all numbers of one frame."""
    numbers = [entry for entry in meta.features.values() if entry["dtype"] not in _NOT_NUMBERS]
    return sum(
        int(np.dtype(entry["dtype"]).itemsize * np.prod(entry["shape"])) for entry in numbers
    )


def list_video_cameras(meta: LeRobotDatasetMetadata, gop: int | None) -> list[CameraFrames]:
    """Return the cameras stored as MP4, as input to `estimate_rank`. Opens no video.

    `gop` is the number of frames per key frame; None for the one in info.json, or, if info.json has
    none, the recorder's default.
    """
    cameras = []
    for key in meta.video_keys:
        entry = meta.features[key]
        info = entry.get("info") or entry.get("video_info") or {}
        frames = gop or int(info.get("video.g") or config.VIDEO_GOP)
        is_long = frames > LONG_GOP_FRAMES
        cameras.append(CameraFrames(decoded_bytes(entry), frames, 0, has_long_gops=is_long))
    return cameras


def estimate_steps(plan: EpochPlan, cut: Cut, *, epochs: int, samples_per_s: float) -> RunSteps:
    """Return the steps of a run in which each rank consumes `samples_per_s`. Pure."""
    per_epoch = steps_left(cut, plan.num_frames, 0)
    return RunSteps(
        per_epoch=per_epoch,
        total=epochs * per_epoch,
        epoch_s=plan.num_frames / cut.world_size / samples_per_s,
        dropped_frames=dropped_frames(cut, plan.num_frames, 0),
        repeated_frames=0 if cut.drop_last else -plan.num_frames % cut.world_size,
    )


def estimate_mixing(plan: EpochPlan, cut: Cut, *, wanted: float) -> BatchMixing:
    """Return how many episodes a batch mixes. Pure."""
    step_size = min(cut.step_size, plan.num_frames)
    return BatchMixing(
        window_frames=plan.window,
        uniform=uniform_distinct(np.diff(plan.line.starts), step_size),
        expected=expected_distinct(plan, step_size, window=plan.window),
        simulated=simulated_distinct(plan, step_size),
        per_rank=simulated_distinct(plan, cut.batch_size, step=cut.world_size),
        wanted=wanted,
        smallest_pool=smallest_pool(plan, step_size, diversity=wanted),
    )


def estimate_rank(
    plan: EpochPlan,
    cut: Cut,
    sizes: DatasetSizes,
    cameras: Sequence[CameraFrames],
    *,
    epoch_s: float,
) -> RankNeeds:
    """Return what one rank reads and keeps if an epoch takes `epoch_s`. Pure."""
    lanes = rank_lanes(cut, plan.lanes)
    open_mean, open_most = resident_episodes(plan, lanes)
    share = len(lanes) / plan.lanes
    # Read again: the window around a lane's entry, unless it is so large that it never closes.
    lane_frames = plan.num_frames / plan.lanes
    again = max(0.0, min(plan.window, lane_frames - plan.window) / lane_frames)
    read_share = share * (1 + again)
    episodes = read_share * plan.num_episodes + len(lanes)
    reads = round(episodes * (1 + sizes.num_videos))
    opened = min(sizes.num_data_files + sizes.num_video_files, reads)
    requests = reads + sizes.opening_requests * opened
    total_bytes = sizes.data_bytes + sizes.video_bytes
    row_bytes = sizes.row_bytes_per_frame * plan.num_frames / plan.num_episodes
    return RankNeeds(
        lanes=len(lanes),
        readers=cut.world_size * len(lanes) // plan.lanes,
        open_episodes=open_mean,
        open_episodes_most=open_most,
        bytes_per_epoch=round(read_share * total_bytes),
        bytes_per_s=read_share * total_bytes / epoch_s,
        requests_per_epoch=requests,
        requests_per_s=requests / epoch_s,
        frame_cache_bytes=sum(frame_memory(plan, len(lanes), cameras, decodes_whole_gops=False)),
        row_cache_bytes=round(open_most * row_bytes),
        disk_cache_bytes=round(open_most * total_bytes / plan.num_episodes),
    )


def _file_sizes(meta: LeRobotDatasetMetadata, folder: str, suffix: str) -> list[int]:
    try:
        return list(FileOpener(location_of(meta)).list_files(folder, suffix).values())
    except NoListingError:
        return []  # plain web servers list no files


def _num_files(meta: LeRobotDatasetMetadata, prefix: str) -> int:
    chunks, files = (meta.episodes[f"{prefix}/{name}_index"] for name in ("chunk", "file"))
    return int(np.unique(np.stack([chunks, files]), axis=1).shape[1])
