# SPDX-License-Identifier: Apache-2.0
"""What a run will need, foretold from its plan and the dataset's sizes. Pure.

Reads are counted as a streaming rank makes them at best: one per episode and video, one for an
episode's rows, two per file for its index. A lane is a circle, so what is open where an epoch
enters it is read at the start and again at the end, unless the disk cache keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robostream.plan import Cut, EpochPlan, dropped_frames, rank_lanes, steps_left
from robostream.tools.dataset_sizes import DatasetSizes
from robostream.tools.diversity import (
    expected_distinct,
    resident_episodes,
    simulated_distinct,
    smallest_pool,
    uniform_distinct,
)


@dataclass(frozen=True, slots=True)
class Steps:
    """How long a run is.

    Attributes:
        per_epoch: Batches that every rank delivers in an epoch.
        total: The same over all epochs.
        epoch_s: Seconds an epoch takes at the given consumption.
        dropped_frames: Frames of the tail that are not delivered, per epoch.
        repeated_frames: Frames delivered twice to complete the tail, per epoch.
    """

    per_epoch: int
    total: int
    epoch_s: float
    dropped_frames: int
    repeated_frames: int


@dataclass(frozen=True, slots=True)
class Mixing:
    """How many episodes a batch mixes.

    Attributes:
        window_frames: Frames mixed at a time in a lane.
        uniform: Distinct episodes in a global batch drawn from the whole dataset, expected.
        expected: Distinct episodes in a global batch of this plan, in closed form.
        simulated: The same, counted in the order itself.
        per_rank: Distinct episodes in one rank's batch, counted in the order itself.
        wanted: The share of `uniform` that is wanted.
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
        lanes: Lanes the rank touches.
        readers: How many ranks touch the same lanes.
        open_episodes: Episodes begun and not finished, on average.
        open_episodes_most: The most of them found at a time.
        bytes_per_epoch: Bytes read in an epoch.
        bytes_per_s: The same per second, at the given consumption.
        requests_per_epoch: Reads in an epoch.
        requests_per_s: The same per second, at the given consumption.
        frame_cache_bytes: RAM with which every frame is decoded once.
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


def estimate_steps(plan: EpochPlan, cut: Cut, *, epochs: int, samples_per_s: float) -> Steps:
    """Return how long a run is, if each rank consumes `samples_per_s`. Pure."""
    per_epoch = steps_left(cut, plan.num_frames, 0)
    return Steps(
        per_epoch=per_epoch,
        total=epochs * per_epoch,
        epoch_s=plan.num_frames / cut.world_size / samples_per_s,
        dropped_frames=dropped_frames(cut, plan.num_frames, 0),
        repeated_frames=0 if cut.drop_last else -plan.num_frames % cut.world_size,
    )


def estimate_mixing(plan: EpochPlan, cut: Cut, *, wanted: float) -> Mixing:
    """Return how many episodes a batch mixes. Pure."""
    step_size = min(cut.step_size, plan.num_frames)
    return Mixing(
        window_frames=plan.window,
        uniform=uniform_distinct(np.diff(plan.line.starts), step_size),
        expected=expected_distinct(plan, step_size, window=plan.window),
        simulated=simulated_distinct(plan, step_size),
        per_rank=simulated_distinct(plan, cut.batch_size, step=cut.world_size),
        wanted=wanted,
        smallest_pool=smallest_pool(plan, step_size, diversity=wanted),
    )


def estimate_rank(plan: EpochPlan, cut: Cut, sizes: DatasetSizes, *, epoch_s: float) -> RankNeeds:
    """Return what one rank reads and keeps, if an epoch takes `epoch_s`. Pure."""
    lanes = rank_lanes(cut, plan.lanes)
    open_mean, open_most = resident_episodes(plan, lanes)
    share = len(lanes) / plan.lanes
    read_share = share * (1 + _share_read_again(plan))
    episodes = read_share * plan.num_episodes + len(lanes)
    files = sizes.num_data_files + sizes.num_video_files
    requests = round(episodes * (1 + sizes.num_videos)) + 2 * files
    total_bytes = sizes.data_bytes + sizes.video_bytes
    frame_bytes = sizes.decoded_bytes_per_frame
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
        frame_cache_bytes=round(len(lanes) * _frames_ahead(plan) * frame_bytes),
        row_cache_bytes=round(open_most * row_bytes),
        disk_cache_bytes=round(open_most * total_bytes / plan.num_episodes),
    )


def _share_read_again(plan: EpochPlan) -> float:
    # Of a lane: the window around its entry, less what never closes in between.
    lane_frames = plan.num_frames / plan.lanes
    return max(0.0, min(plan.window, lane_frames - plan.window) / lane_frames)


def _frames_ahead(plan: EpochPlan) -> float:
    # Frames of a lane decoded but not delivered, when each episode is decoded in one go: half of
    # the window is still to come, and half of the episode at its front is not yet in the window.
    lane_frames = plan.num_frames / plan.lanes
    lengths = np.diff(plan.line.starts).astype(float)
    front = float((lengths**2).sum() / lengths.sum()) / 2
    return lane_frames if plan.window >= lane_frames else min(plan.window / 2 + front, lane_frames)
