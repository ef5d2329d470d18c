# SPDX-License-Identifier: Apache-2.0
"""`bench plan`, `bench shuffle` and `bench node`: what follows from the plan alone.

`bench plan` measures each size in a process of its own, so its peak memory is its own. Times are
CPU times: the plan is arithmetic on one thread, so they do not change on a busy machine.

`bench node` simulates a full node: the lanes of each worker, and how busy workers are. The slowest
worker sets the rate of a rank, because a batch needs every worker's part. A worker's work for a
batch is the images it decodes meanwhile, several frames of a lane at a time, and those it converts;
of GOPs of 2 frames, it decodes both when the first is due. It may be ahead of the slowest worker by
as many batches as the loader builds ahead.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.bench.measure import cpu_s
from robostream.bench.processes import resident_bytes, run_process
from robostream.bench.results import Figures, Measured, Table
from robostream.plan import (
    CHUNK_FRAMES,
    Cut,
    DecodePacing,
    EpochPlan,
    Schedule,
    WorkerShard,
    capture_state,
    default_lanes,
    is_chunk_due,
    margin_frames,
    rank_lanes,
    schedule_steps,
    walk,
)

_MEAN_LENGTH = 300
_BATCH_SIZE = 64
_SEEKS = {"1 %": 0.01, "50 %": 0.50, "99 %": 0.99}
_COLUMNS = {
    "frames": "frames",
    "episodes": "episodes",
    "start s": "start_s",
    "peak RSS MB": "peak_rss_mb",
    "stored order MB": "stored_order_mb",
    "ns/position": "ns_per_position",
    "same, rank of 8": "ns_per_own_position_of_8",
    "state ms": "state_ms",
    **{f"seek {at} ms": f"seek_ms {at}" for at in _SEEKS},
    "99 % / 1 %": "seek_ratio",
}
_NODE_BATCH_SIZE = 32
_NODE_STEPS = 400
# The share of an image's cost that goes into colour conversion; the rest is decoding.
_CONVERSION = 0.15
# Ranks of a node, and workers of each.
_NODES = ((1, 2), (1, 16), (2, 16), (8, 16), (8, 28))


def run(quick: bool) -> Measured:
    """Measure the order of epochs of several sizes."""
    sizes = [10**6, 10**9] if quick else [10**6, 10**8, 10**9]
    rounds = 21 if quick else 101
    rows = [run_process(measure_plan, num_frames=size, rounds=rounds) for size in sizes]
    return _show(rows, _COLUMNS)


def _show(rows: Sequence[Figures], columns: Mapping[str, str] | None = None) -> Measured:
    return {"results": rows}, Table.of(rows, columns).text()


def measure_plan(num_frames: int, rounds: int) -> Figures:
    """Measure one size in this process."""
    half = _MEAN_LENGTH // 2
    lengths = half + np.arange(num_frames // _MEAN_LENGTH, dtype=np.int64) * 7919 % (2 * half + 1)
    begin = time.process_time()
    lanes = default_lanes(len(lengths), 1, shuffle=True)
    plan = EpochPlan(lengths, seed=1, epoch=0, lanes=lanes, pool_size=config.EPISODE_POOL_SIZE)
    plan.slice(0, _BATCH_SIZE)
    start_s = time.process_time() - begin
    # Interleaved, and never to the same position twice.
    times: dict[str, list[float]] = {at: [] for at in _SEEKS}
    for attempt, (at, share) in itertools.product(range(rounds), _SEEKS.items()):
        position = int(plan.num_frames * share) - attempt * _BATCH_SIZE
        position = max(0, min(position, plan.num_frames - _BATCH_SIZE))
        times[at].append(1e3 * cpu_s(partial(plan.slice, position, position + _BATCH_SIZE)))
    seeks = {at: median(values) for at, values in times.items()}

    def state_ms(at: int) -> float:
        return 1e3 * cpu_s(lambda: capture_state(plan, plan.num_frames // 2 + at, fingerprint=""))

    state_ms(0)  # the first is slower
    return {
        "frames": plan.num_frames,
        "episodes": plan.num_episodes,
        "start_s": start_s,
        "stored_order_mb": 8 * plan.num_frames / 1e6,
        "ns_per_position": _walk_ns(plan, world_size=1),
        "ns_per_own_position_of_8": _walk_ns(plan, world_size=8),
        "state_ms": median(map(state_ms, range(rounds))),
        **{f"seek_ms {at}": value for at, value in seeks.items()},
        "seek_ratio": seeks["99 %"] / seeks["1 %"],
        "peak_rss_mb": resident_bytes(peak=True) / 1e6,
    }


def _walk_ns(plan: EpochPlan, *, world_size: int) -> float:
    cut = Cut(rank=world_size - 1, world_size=world_size, batch_size=_BATCH_SIZE, drop_last=True)
    steps = range(min(500_000, plan.num_frames // 2) // cut.step_size)
    walk_s = cpu_s(lambda: deque(walk(plan, cut, plan.num_frames // 3, steps), maxlen=0))
    return walk_s * 1e9 / (len(steps) * _BATCH_SIZE)


def run_shuffle(quick: bool) -> Measured:
    """Measure shuffle quality by pool size."""
    from robostream.tools import made_up_lengths, measure_methods  # imports more than numpy

    lengths = made_up_lengths(500 if quick else 2000, 150, seed=0)
    measured = measure_methods(
        lengths,
        batch_size=_BATCH_SIZE,
        lanes=default_lanes(len(lengths), 1, shuffle=True),
        pool_sizes=[16, 64, 256],
        seed=0,
    )
    return _show([dataclasses.asdict(quality) for quality in measured])


def run_node(quick: bool) -> Measured:
    """Simulate nodes of several sizes."""
    steps = 100 if quick else _NODE_STEPS
    sizes = itertools.product((320, 2_000, 50_000), (1, 3), _NODES)
    return _show([simulate(e, cameras, *node, steps=steps) for e, cameras, node in sizes])


def simulate(episodes: int, cameras: int, ranks: int, workers: int, steps: int) -> dict[str, float]:
    """Return the lanes of rank 0's workers and the share of time they are busy."""
    from robostream.loader import choose_depth  # imports torch

    lanes = default_lanes(episodes, ranks, shuffle=True)
    plan = EpochPlan(
        np.full(episodes, _MEAN_LENGTH),
        seed=config.SEED,
        epoch=0,
        lanes=lanes,
        pool_size=config.EPISODE_POOL_SIZE,
    )
    cut = Cut(0, ranks, _NODE_BATCH_SIZE, drop_last=True)
    own = list(rank_lanes(cut, lanes))
    shards = [WorkerShard(worker, workers, cameras) for worker in range(workers)]
    # By worker, how many cameras of each lane it decodes.
    counts = [[len(shard.cameras(at)) for at in range(len(own))] for shard in shards]
    pairs = [sum(of_worker) for of_worker in counts]
    schedule = Schedule(plan, cut, 0)
    ahead = np.array([_work(schedule, own, of_worker, steps) for of_worker in counts])
    pairwise = np.array([_work_in_pairs(schedule, own, of_worker, steps) for of_worker in counts])
    depth = choose_depth(_NODE_BATCH_SIZE, batch_bytes=0, num_workers=workers)
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


def _work(schedule: Schedule, lanes: list[int], cameras: list[int], steps: int) -> list[float]:
    """Return a worker's work for each of the first steps, in images."""
    margin = margin_frames(schedule.plan.window)
    pacings: dict[int, DecodePacing] = {}
    ahead: dict[int, int] = {}
    passed: Counter[int] = Counter()
    work = []
    for share in schedule_steps(schedule, lanes):
        if share.step == steps:
            break
        total = 0.0
        for at, head in zip(share.lanes, share.heads, strict=True):
            if not cameras[at]:
                continue
            # The steady state; the cost of an epoch's first windows is not simulated.
            pacing = pacings.setdefault(at, DecodePacing(head, margin, behind=0))
            passed[at] += 1
            goal = pacing.goal(head, passed[at])
            reached = ahead.setdefault(at, goal - len(ahead) % CHUNK_FRAMES)
            if is_chunk_due(reached, head, goal):
                ahead[at] = goal
                total += cameras[at] * (goal - reached) * (1 - _CONVERSION)
            total += cameras[at] * _CONVERSION
        work.append(total)
    return work


def _work_in_pairs(
    schedule: Schedule, lanes: list[int], cameras: list[int], steps: int
) -> list[float]:
    """Return the same for GOPs of 2 frames, which are decoded together."""
    waiting: set[tuple[int, int]] = set()
    work = []
    for share in schedule_steps(schedule, lanes):
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


def _share_used(work: npt.NDArray[np.float64], depth: int) -> float:
    """Return how busy workers are if none is over `depth` batches ahead of the slowest."""
    done = np.zeros(work.shape[1] + 1)
    free = np.zeros(work.shape[0])
    for step in range(work.shape[1]):
        start = np.maximum(free, done[max(0, step + 1 - depth)])
        free = start + work[:, step]
        done[step + 1] = free.max()
    return float(work.sum() / (len(work) * done[-1]))
