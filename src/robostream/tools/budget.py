# SPDX-License-Identifier: Apache-2.0
"""Estimates of what a run needs, over a dataset or a mixture, from its plan, metadata and files.

Files are listed, no data is read. Request counts are lower bounds: one per episode and video, one
for an episode's rows, two per file for its index. A lane is circular, so the episodes that are open
where an epoch enters it are read at the start and again at the end, unless the disk cache keeps
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from robostream import config
from robostream.assemble import Schema, SourceMap
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
_BATCHES = 256
_RUNS = 16  # of consecutive batches, at equal distances
_NOT_NUMBERS = ("video", "image", "string", "language")


@dataclass(frozen=True, slots=True)
class DatasetSizes:
    """Sizes of a dataset on disk and in memory."""

    data_bytes: int
    video_bytes: int
    num_data_files: int
    num_video_files: int
    num_videos: int  # cameras stored as MP4
    opening_requests: int  # requests to open a file, besides those for an episode in it
    measured: bool  # whether the bytes are file sizes; if not, they are upper bounds from info.json
    decoded_bytes_per_frame: int  # bytes of all cameras of one frame, as decoders return them
    row_bytes_per_frame: int  # bytes of all numbers of one frame


@dataclass(frozen=True, slots=True)
class RunSteps:
    """The number of steps of a run."""

    per_epoch: int  # batches that every rank delivers in an epoch
    total: int  # batches that every rank delivers in all epochs
    epoch_s: float  # seconds that an epoch takes at the given consumption
    dropped_frames: int  # frames of the tail that are not delivered, per epoch
    repeated_frames: int  # frames delivered twice to complete the tail, per epoch


@dataclass(frozen=True, slots=True)
class BatchMixing:
    """How many episodes a batch mixes."""

    window_frames: int  # frames mixed at a time in a lane
    uniform: float  # expected distinct episodes in a global batch drawn from the whole dataset
    expected: float  # expected distinct episodes in a global batch of this plan, in closed form
    simulated: float  # distinct episodes in a global batch, counted in the order itself
    per_rank: float  # distinct episodes in one rank's batch, counted in the order itself
    wanted: float  # the requested share of `uniform`
    smallest_pool: int  # the smallest pool that is expected to reach it


@dataclass(frozen=True, slots=True)
class RankNeeds:
    """What one rank reads and keeps."""

    lanes: int  # lanes that the rank reads
    readers: int  # how many ranks read the same lanes
    open_episodes: float  # mean number of episodes begun and not finished
    open_episodes_most: int  # the most of them found at a time
    bytes_per_epoch: int
    bytes_per_s: float
    requests_per_epoch: int
    requests_per_s: float
    frame_cache_bytes: int  # RAM with which every frame is decoded once, as the loader computes it
    row_cache_bytes: int  # RAM for the rows of the open episodes
    disk_cache_bytes: int  # disk for the open episodes, so that each is fetched once


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
    return sum(int(np.dtype(e["dtype"]).itemsize * np.prod(e["shape"])) for e in numbers)


def list_video_cameras(meta: LeRobotDatasetMetadata, gop: int | None) -> list[CameraFrames]:
    """Return the cameras stored as MP4, as input to `estimate_rank`. Opens no video.

    `gop` is the frames per key frame; None for that of info.json, else the recorder's default.
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
    plan: EpochPlan, cut: Cut, sizes: DatasetSizes, cameras: list[CameraFrames], *, epoch_s: float
) -> RankNeeds:
    """Return what one rank reads and keeps if an epoch takes `epoch_s`. Pure."""
    lanes = rank_lanes(cut, plan.lanes)
    open_mean, open_most = resident_episodes(plan, lanes)
    # Read again: the window around a lane's entry, unless it is so large that it never closes.
    lane_frames = plan.num_frames / plan.lanes
    again = max(0.0, min(plan.window, lane_frames - plan.window) / lane_frames)
    read_share = len(lanes) / plan.lanes * (1 + again)
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


@dataclass(frozen=True, slots=True)
class MixtureFigures:
    """What an epoch of a mixture takes."""

    samples: int  # samples of an epoch
    steps: int  # batches that every rank delivers in an epoch
    lanes: int  # lanes of the order
    distinct: float  # mean number of distinct episodes in a global batch
    uniform: float  # the same, expected of a uniform shuffle
    variation: float  # of datasets' counts in global batches: std over that of independent draws
    rank_variation: float  # the same in the batches of one rank
    open_episodes: int  # the most episodes of a rank that are begun and not finished
    frame_cache_bytes: int  # RAM of a rank with which every frame is decoded about once
    row_cache_bytes: int  # RAM of a rank for the rows of the open episodes


def measure_mixture(
    plan: EpochPlan, cut: Cut, cameras: Sequence[CameraFrames], episode_bytes: float
) -> MixtureFigures:
    """Return the figures of an epoch; a mean episode's rows take `episode_bytes`. Pure."""
    step_size = min(cut.step_size, plan.num_frames)
    runs = plan.line.segments
    lengths = np.bincount(np.unique(runs.episodes, return_inverse=True)[1], weights=runs.counts)
    lanes = rank_lanes(cut, plan.lanes)
    open_episodes = resident_episodes(plan, lanes)[1]
    return MixtureFigures(
        samples=plan.num_frames,
        steps=steps_left(cut, plan.num_frames, 0),
        lanes=plan.lanes,
        distinct=simulated_distinct(plan, step_size),
        uniform=uniform_distinct(lengths.astype(np.int64), step_size),
        variation=share_variation(plan, step_size),
        rank_variation=share_variation(plan, cut.batch_size, step=cut.world_size),
        open_episodes=open_episodes,
        frame_cache_bytes=sum(frame_memory(plan, len(lanes), cameras, decodes_whole_gops=False)),
        row_cache_bytes=round(open_episodes * episode_bytes),
    )


def share_variation(plan: EpochPlan, batch_size: int, *, step: int = 1) -> float:
    """Return how much the shares of datasets vary between batches; 1 as independent draws. Pure.

    With `step` as the world size, these are the batches of one rank.
    """
    span = min(batch_size * step, plan.num_frames)
    together = max(1, min(_BATCHES // _RUNS, plan.num_frames // span))
    starts = np.linspace(0, plan.num_frames - together * span, _RUNS).astype(int).tolist()
    runs = [plan.slice(s, s + together * span, step)[0] for s in starts]
    batches = [plan.content.datasets_of(b) for r in runs for b in np.array_split(r, together)]
    datasets = 1 + max(int(batch.max()) for batch in batches)
    counts = np.array([np.bincount(batch, minlength=datasets) for batch in batches])
    line = plan.line.segments
    frames = np.bincount(plan.content.datasets_of(line.episodes), weights=line.counts)
    shares = frames[:datasets] / frames.sum()
    drawn = counts.sum(axis=1).mean() * float((shares * (1 - shares)).sum())
    return math.sqrt(counts.var(axis=0).sum() / drawn) if drawn > 0 else 0.0


def list_mixture_cameras(
    schema: Schema, maps: Sequence[SourceMap], metas: Sequence[LeRobotDatasetMetadata]
) -> list[CameraFrames]:
    """Return the cameras stored as MP4, each as large as its largest dataset needs it."""
    videos = [dict(zip(m.video_keys, list_video_cameras(m, None), strict=True)) for m in metas]
    found = []
    for number, camera in enumerate(schema.cameras):
        own = [
            replace(
                videos[n][key],
                frame_bytes=decoded_bytes(metas[n].features[key], camera.shape),
                window_frames=int(np.ptp(source_map.windows.get(key, [0]))),
            )
            for n, source_map in enumerate(maps)
            if (key := source_map.cameras[number]) in videos[n]
        ]
        if own:
            found.append(CameraFrames(*map(max, zip(*map(astuple, own), strict=True))))
    return found
