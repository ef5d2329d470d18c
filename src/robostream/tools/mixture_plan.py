# SPDX-License-Identifier: Apache-2.0
"""What a mixture needs and how well it is mixed, from its plan and metadata. Reads no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from robostream.assemble import Schema, SourceMap
from robostream.meta import LeRobotDatasetMetadata, decoded_bytes
from robostream.plan import CameraFrames, Cut, EpochPlan, frame_memory, rank_lanes, steps_left
from robostream.tools.budget import list_video_cameras
from robostream.tools.shuffle_quality import resident_episodes, simulated_distinct, uniform_distinct

_BATCHES = 256
_RUNS = 16  # of consecutive batches, at equal distances


@dataclass(frozen=True, slots=True)
class MixtureFigures:
    """What an epoch of a mixture takes.

    Attributes:
        samples: Samples of an epoch.
        steps: Batches that every rank delivers in an epoch.
        lanes: Lanes of the order.
        distinct: Mean number of distinct episodes in a global batch.
        uniform: The same, expected of a uniform shuffle.
        variation: Standard deviation of a dataset's count in a global batch, as a share of that of
            independent draws.
        rank_variation: The same in the batches of one rank.
        open_episodes: The most episodes of a rank that are begun and not finished.
        frame_cache_bytes: RAM of a rank with which every frame is decoded about once.
        row_cache_bytes: RAM of a rank for the rows of the open episodes.
    """

    samples: int
    steps: int
    lanes: int
    distinct: float
    uniform: float
    variation: float
    rank_variation: float
    open_episodes: int
    frame_cache_bytes: int
    row_cache_bytes: int


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
