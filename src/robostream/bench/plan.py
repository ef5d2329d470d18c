# SPDX-License-Identifier: Apache-2.0
"""`bench plan`: start-up, memory, positions and seeks of an epoch; and `bench shuffle`.

Each size is measured in a process of its own, so its peak memory is its own. Times are CPU times:
the plan is arithmetic on one thread, so they equal wall-clock times on an idle machine and do not
change on a busy one.
"""

from __future__ import annotations

import dataclasses
import time
from statistics import median

import numpy as np

from robostream import config
from robostream.bench.memory import peak_bytes
from robostream.bench.process import run_process
from robostream.bench.results import Figures, machine
from robostream.bench.table import format_table
from robostream.plan import Cut, EpochPlan, capture_state, default_lanes, walk

_MEAN_LENGTH = 300
_BATCH_SIZE = 64
_SEEKS = {"1 %": 0.01, "50 %": 0.50, "99 %": 0.99}


def run(quick: bool) -> Figures:
    """Measure, print the table, and return the figures."""
    sizes = [10**6, 10**9] if quick else [10**6, 10**8, 10**9]
    rounds = 21 if quick else 101
    results = [run_process(measure_plan, num_frames=size, rounds=rounds) for size in sizes]
    names = {
        "frames": "frames",
        "episodes": "episodes",
        "start_s": "start s",
        "peak_rss_mb": "peak RSS MB",
        "stored_order_mb": "stored order MB",
        "ns_per_position": "ns/position",
        "ns_per_own_position_of_8": "same, rank of 8",
        "state_ms": "state ms",
        **{f"seek_ms {at}": f"seek {at} ms" for at in _SEEKS},
        "seek_ratio": "99 % / 1 %",
    }
    rows = [[result[key] for key in names] for result in results]
    print(format_table(list(names.values()), rows))
    return {"machine": machine(), "results": results}


def measure_plan(num_frames: int, rounds: int) -> Figures:
    """Measure one size in this process."""
    half = _MEAN_LENGTH // 2
    lengths = half + np.arange(num_frames // _MEAN_LENGTH, dtype=np.int64) * 7919 % (2 * half + 1)
    begin = time.process_time()
    lanes = default_lanes(len(lengths), 1, shuffle=True)
    plan = EpochPlan(lengths, seed=1, epoch=0, lanes=lanes, pool_size=config.EPISODE_POOL_SIZE)
    plan.slice(0, _BATCH_SIZE)
    start_s = time.process_time() - begin
    seeks = _seek_ms(plan, rounds)
    capture_state(plan, plan.num_frames // 3, fingerprint="")
    return {
        "frames": plan.num_frames,
        "episodes": plan.num_episodes,
        "start_s": start_s,
        "stored_order_mb": 8 * plan.num_frames / 1e6,
        "ns_per_position": _walk_ns(plan, world_size=1),
        "ns_per_own_position_of_8": _walk_ns(plan, world_size=8),
        "state_ms": median(_state_ms(plan, at) for at in range(rounds)),
        **{f"seek_ms {at}": value for at, value in seeks.items()},
        "seek_ratio": seeks["99 %"] / seeks["1 %"],
        "peak_rss_mb": peak_bytes() / 1e6,
    }


def _seek_ms(plan: EpochPlan, rounds: int) -> dict[str, float]:
    # Interleaved, and never to the same position twice.
    times: dict[str, list[float]] = {at: [] for at in _SEEKS}
    for attempt in range(rounds):
        for at, share in _SEEKS.items():
            position = int(plan.num_frames * share) - attempt * _BATCH_SIZE
            position = max(0, min(position, plan.num_frames - _BATCH_SIZE))
            begin = time.process_time()
            plan.slice(position, position + _BATCH_SIZE)
            times[at].append((time.process_time() - begin) * 1e3)
    return {at: median(values) for at, values in times.items()}


def _walk_ns(plan: EpochPlan, *, world_size: int) -> float:
    cut = Cut(rank=world_size - 1, world_size=world_size, batch_size=_BATCH_SIZE, drop_last=True)
    steps = range(min(500_000, plan.num_frames // 2) // cut.step_size)
    begin = time.process_time()
    for _ in walk(plan, cut, plan.num_frames // 3, steps):
        pass
    return (time.process_time() - begin) * 1e9 / (len(steps) * _BATCH_SIZE)


def _state_ms(plan: EpochPlan, at: int) -> float:
    begin = time.process_time()
    capture_state(plan, plan.num_frames // 2 + at, fingerprint="")
    return (time.process_time() - begin) * 1e3


def run_shuffle(quick: bool) -> Figures:
    """Measure shuffle quality by pool size, print the table, and return the figures."""
    from robostream.tools import made_up_lengths, measure_methods  # imports more than numpy

    lengths = made_up_lengths(500 if quick else 2000, 150, seed=0)
    measured = measure_methods(
        lengths,
        batch_size=_BATCH_SIZE,
        lanes=default_lanes(len(lengths), 1, shuffle=True),
        pool_sizes=[16, 64, 256],
        seed=0,
    )
    rows = [dataclasses.asdict(quality) for quality in measured]
    print(format_table(list(rows[0]), [list(row.values()) for row in rows]))
    return {"machine": machine(), "results": rows}
