# SPDX-License-Identifier: Apache-2.0
"""The whole loader against the floor and a peer, from local disk.

In each round floor, peer and robostream take turns, each in a process of its own, on the same
dataset, cores and samples per batch. A ratio is the median over rounds of one round's quotient.
Robostream streams two epochs of a dataset larger than its frame cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from robostream import config
from robostream.bench.resume import measure_resume
from robostream.bench.table import format_table, machine
from robostream.tools import SynthSpec, make_dataset

TITLE = "loader: images/s against decoding alone and a plain map-style loader (shuffled, uint8)"

_THREADS = 2
_FPS = 20
_POOL = 8  # episodes mixed at a time, and lanes
_EIGHT_SECONDS = [-float(second) for second in range(7, -1, -1)]
# What the peer is given: it is too slow for whole epochs.
_PEER_BATCHES = 8


def run(quick: bool) -> dict[str, Any]:
    """Measure, print the tables, and return the figures."""
    config.quiet_encoders()
    rounds = 2 if quick else 3
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        root = Path(folder) / "data"
        made = make_dataset(root, _spec(quick))
        # Room, as 4:2:0, for the episodes that are open at a time: the pool and those at its edges.
        # Never for all of them: a dataset that fits would be decoded in the first epoch only.
        episodes = min(3 * _POOL, 0.75 * made.episodes)
        images = episodes * made.frames / made.episodes * len(made.camera_kbit_per_s)
        budget = int(images * 256 * 256 * 3 / 2)
        cases = {
            "single": _case(root, made.camera_kbit_per_s, None, 32, budget),
            "sarm": _case(root, made.camera_kbit_per_s, _EIGHT_SECONDS, 16, budget),
        }
        results = {name: _measure(case, rounds) for name, case in cases.items()}
    _print(results, budget)
    resume = measure_resume(frames=10**6 if quick else 10**7)
    return {"machine": machine(), "budget_bytes": budget, "cases": results, "resume": resume}


def _spec(quick: bool) -> SynthSpec:
    # Many small files, so that the floor's threads have equally much to do.
    return SynthSpec(
        episodes=8 if quick else 32, min_frames=200, max_frames=320, fps=_FPS, video_file_mb=0.5
    )


def _case(
    root: Path, cameras: dict[str, float], window_s: list[float] | None, batch: int, budget: int
) -> dict[str, Any]:
    return {
        "root": str(root),
        "batch_size": batch,
        "threads": _THREADS,
        "deltas": dict.fromkeys(cameras, window_s) if window_s else None,
        "offsets": [round(s * _FPS) for s in window_s or [0.0]],
        "frame_cache_bytes": budget,
        "pool": _POOL,
        "max_batches": None,
    }


def _measure(case: dict[str, Any], rounds: int) -> dict[str, Any]:
    samples: dict[str, list[dict[str, float]]] = {"floor": [], "peer": [], "robostream": []}
    for _ in range(rounds):
        for contestant, kept in samples.items():
            limit = {"max_batches": _PEER_BATCHES} if contestant == "peer" else {}
            kept.append(_run({**case, **limit, "contestant": contestant}))
    rates = {name: [s["images_per_s"] for s in kept] for name, kept in samples.items()}
    ours = samples["robostream"]
    return {
        "images_per_s": {name: median(values) for name, values in rates.items()},
        "over_floor": _ratio(rates["robostream"], rates["floor"]),
        "over_peer": _ratio(rates["robostream"], rates["peer"]),
        "samples_per_s": median(s["samples_per_s"] for s in ours),
        "first_batch_s": median(s["first_batch_s"] for s in ours),
        "wait_s": median(s["wait_s"] for s in ours),
        "amplification": median(s["amplification"] for s in ours),
        "peak_bytes": max(s["peak_bytes"] for s in ours),
    }


def _run(request: dict[str, Any]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "robostream.bench.loader_run", json.dumps(request)],
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def _print(results: dict[str, dict[str, Any]], budget: int) -> None:
    goals = {"single": 0.75, "sarm": 2.5}
    header = ["case", "floor", "plain map-style", "robostream", "over floor", "goal", "over plain"]
    header += ["first batch s", "decoded per delivered", "peak RSS"]
    rows = [
        [
            name,
            *result["images_per_s"].values(),
            result["over_floor"],
            goals[name],
            result["over_peer"],
            result["first_batch_s"],
            result["amplification"],
            config.format_bytes(result["peak_bytes"]),
        ]
        for name, result in results.items()
    ]
    print(format_table(header, rows))
    print(
        f"images/s on {_THREADS} threads or workers each, frame cache {config.format_bytes(budget)}"
    )
    print(
        "single: batch 32, one picture of 3 cameras; sarm: batch 16, 8 pictures 1 s apart of each"
    )
    print("goals: first batch under 2 s, peak RSS at most frame cache + 1 GiB", flush=True)
