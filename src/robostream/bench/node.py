# SPDX-License-Identifier: Apache-2.0
"""`bench node`: a simulation of a full node: the lanes of each worker, and how busy workers are.

The slowest worker sets the rate of a rank, because a batch needs every worker's part. A worker's
work for a batch is the images it decodes meanwhile and those it converts. It decodes ahead, several
frames of a lane at a time; with GOPs of 2 frames, it decodes both when the first is due. It may be
ahead of the slowest worker by as many batches as the loader builds ahead.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from robostream import config
from robostream.bench.results import Figures, machine
from robostream.bench.table import format_table
from robostream.loader import choose_depth
from robostream.plan import (
    CHUNK_FRAMES,
    Cut,
    DecodePacing,
    EpochPlan,
    Schedule,
    WorkerShard,
    default_lanes,
    is_chunk_due,
    margin_frames,
    rank_lanes,
    schedule_steps,
)

_BATCH_SIZE = 32
_STEPS = 400
# The share of an image's cost that goes into colour conversion; the rest is decoding.
_CONVERSION = 0.15
_LENGTH = 300
_NODES = ((1, 2), (1, 16), (2, 16), (8, 16), (8, 28))


def run(quick: bool) -> Figures:
    """Simulate, print the table, and return the figures."""
    rows = []
    for episodes in (320, 2_000, 50_000):
        for cameras in (1, 3):
            for ranks, workers in _NODES:
                rows.append(simulate(episodes, cameras, ranks, workers, 100 if quick else _STEPS))
    print(format_table(list(rows[0]), [list(row.values()) for row in rows]))
    return {"machine": machine(), "results": rows}


def simulate(episodes: int, cameras: int, ranks: int, workers: int, steps: int) -> dict[str, float]:
    """Return the lanes of rank 0's workers and the share of time they are busy."""
    lanes = default_lanes(episodes, ranks, shuffle=True)
    plan = EpochPlan(
        np.full(episodes, _LENGTH),
        seed=config.SEED,
        epoch=0,
        lanes=lanes,
        pool_size=config.EPISODE_POOL_SIZE,
    )
    cut = Cut(0, ranks, _BATCH_SIZE, drop_last=True)
    own = list(rank_lanes(cut, lanes))
    owners = [WorkerShard(worker, workers, cameras) for worker in range(workers)]
    pairs = [sum(len(duties.cameras(at)) for at in range(len(own))) for duties in owners]
    tour = Schedule(plan, cut, 0)
    ahead = np.array([_work(tour, own, duties, steps) for duties in owners])
    pairwise = np.array([_work_in_pairs(tour, own, duties, steps) for duties in owners])
    depth = choose_depth(_BATCH_SIZE, batch_bytes=0, num_workers=workers)
    return {
        "episodes": episodes,
        "cameras": cameras,
        "ranks": ranks,
        "workers": workers,
        "lanes": lanes,
        "pairs, least": min(pairs),
        "pairs, most": max(pairs),
        "share of time used": _share_used(ahead, depth),
        "with GOPs of 2": _share_used(pairwise, depth),
    }


def _work(tour: Schedule, lanes: list[int], duties: WorkerShard, steps: int) -> list[float]:
    """Return a worker's work for each of the first steps, in images."""
    cameras = [len(duties.cameras(at)) for at in range(len(lanes))]
    margin = margin_frames(tour.plan.window)
    paces: dict[int, DecodePacing] = {}
    ahead: dict[int, int] = {}
    passed: Counter[int] = Counter()
    work = []
    for share in schedule_steps(tour, lanes):
        if share.step == steps:
            break
        total = 0.0
        for at, head in zip(share.lanes, share.heads, strict=True):
            if not cameras[at]:
                continue
            # The steady state; the cost of an epoch's first windows is not simulated.
            pace = paces.setdefault(at, DecodePacing(head, margin, behind=0))
            passed[at] += 1
            goal = pace.goal(head, passed[at])
            reached = ahead.setdefault(at, goal - len(ahead) % CHUNK_FRAMES)
            if is_chunk_due(reached, head, goal):
                ahead[at] = goal
                total += cameras[at] * (goal - reached) * (1 - _CONVERSION)
            total += cameras[at] * _CONVERSION
        work.append(total)
    return work


def _work_in_pairs(
    tour: Schedule, lanes: list[int], duties: WorkerShard, steps: int
) -> list[float]:
    """Return the same for GOPs of 2 frames, which are decoded together."""
    cameras = [len(duties.cameras(at)) for at in range(len(lanes))]
    waiting: set[tuple[int, int]] = set()
    work = []
    for share in schedule_steps(tour, lanes):
        if share.step == 2 * steps:
            break
        total = 0.0
        for at, frame in zip(share.lanes, share.frames, strict=True):
            gop = at, frame // 2
            total += cameras[at] * _CONVERSION
            if gop not in waiting:
                total += cameras[at] * 2 * (1 - _CONVERSION)
            waiting ^= {gop}
        work.append(total)
    return work[steps:]  # the start of an epoch, when no frame waits, is not simulated


def _share_used(work: np.ndarray[Any, np.dtype[np.float64]], depth: int) -> float:
    return float(work.sum() / (len(work) * _makespan(work, depth)))


def _makespan(work: np.ndarray[Any, np.dtype[np.float64]], depth: int) -> float:
    """Return when all work is done; no worker is over `depth` batches ahead of the slowest."""
    done = np.zeros(work.shape[1] + 1)
    free = np.zeros(work.shape[0])
    for step in range(work.shape[1]):
        start = np.maximum(free, done[max(0, step + 1 - depth)])
        free = start + work[:, step]
        done[step + 1] = free.max()
    return float(done[-1])
