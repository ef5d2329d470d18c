# SPDX-License-Identifier: Apache-2.0
"""The whole loader, beside the floor and a plain map-style loader (the peer), from local disk.

In each round the floor, the peer and robostream take turns on the same dataset. Each runs in
processes of its own, all with equally many processes and samples per batch. A ratio is the median
over rounds of one round's quotient. Robostream streams two epochs and is timed from its first batch
on; nothing is set but what a case says.

Before robostream runs, as much memory as its decoded pictures may take is touched once, unless the
run is cold: how long a virtual machine waits for its host's memory is not the loader's doing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from robostream import config
from robostream.bench.choose import choose_named
from robostream.bench.datasets import bench_dataset
from robostream.bench.environment import machine
from robostream.bench.floor import decode_floor, random_floor
from robostream.bench.loader_cases import CASES, Case, small
from robostream.bench.loader_docs import publish
from robostream.bench.memory import touch_memory
from robostream.bench.results import median_ratio, medians
from robostream.bench.resume import measure_resume
from robostream.bench.table import format_table
from robostream.byte_sizes import format_bytes
from robostream.loader import share_of_cores

__all__ = ["publish", "run", "run_once"]

# The peer is too slow for whole epochs; it delivers this many batches.
_PEER_BATCHES = 8
_WORKER_BYTES = 150 * 10**6
_TOUCHED_BYTES = 1 << 30


def run(
    quick: bool,
    workers: Sequence[int] = (),
    only: Sequence[str] = (),
    rounds: int | None = None,
    seconds: float = 0.0,
    plain: bool = True,
    cold: bool = False,
) -> dict[str, Any]:
    """Measure, print the tables, and return the figures.

    Args:
        quick: Smaller datasets and fewer rounds.
        workers: How many worker processes; several are measured one after the other.
        only: Names of the cases to measure; all if empty.
        rounds: How often each is measured.
        seconds: How long at most floor and robostream are measured; 0 for whole epochs.
        plain: Whether the plain map-style loader is measured, too.
        cold: Whether memory is left as it is before robostream runs.
    """
    config.quiet_encoders()
    rounds = rounds or (2 if quick else 3)
    numbers = workers or [share_of_cores(1)]
    cases = choose_named({case.name: case for case in CASES}, only)
    touched = None if cold else _touch_twice()
    results = []
    for case in map(small, cases) if quick else cases:
        root = bench_dataset(case.data, case.spec)
        for number in numbers:
            results.append(_measure(case, root, number, rounds, seconds, plain=plain, cold=cold))
            _print(results[-1])
    print(_table(results), flush=True)
    print(
        "over floor: images/s over those of PyAV decoding the same files in order, in as many "
        "processes as workers\nlowest: the lowest rate in 2 s of the first 20 s, over the median\n"
        "memory: of all processes, over frame cache + 150 MB per worker + batches + the consumer"
    )
    figures = {"machine": machine() | {"touch_gb_per_s": touched}, "cases": results}
    if not only:
        figures["resume"] = measure_resume(frames=10**6 if quick else 10**7)
    return figures


def _touch_twice() -> list[float]:
    """Return GB/s at which this machine's memory is written to, as it is and then once more."""
    rates = [touch_memory(_TOUCHED_BYTES) / 1e9 for _ in range(2)]
    print(f"pages of memory are touched at {rates[0]:.1f} GB/s, the next time at {rates[1]:.1f}")
    return rates


def _measure(
    case: Case,
    root: Path,
    workers: int,
    rounds: int,
    seconds: float,
    *,
    plain: bool,
    cold: bool,
) -> dict[str, Any]:
    floor = random_floor if case.is_random else decode_floor
    files = sorted(str(path) for path in root.glob("videos/**/*.mp4"))
    floors: list[float] = []
    samples: dict[str, list[dict[str, Any]]] = {"robostream": []}
    if plain:
        samples = {"peer": [], **samples}
    needed = 0 if cold else run_once(case, root, workers, 0, contestant="memory")["bytes"]
    for _ in range(rounds):
        floors.append(floor(files, workers, at_most_s=seconds / 3))
        for contestant, kept in samples.items():
            if contestant == "robostream":
                touch_memory(needed)
            kept.append(run_once(case, root, workers, seconds, contestant=contestant))
    ours = samples["robostream"]
    rates = [sample["images_per_s"] for sample in ours]
    peer = [sample["images_per_s"] for sample in samples.get("peer", [])]
    return {
        "case": case.name,
        "workers": workers,
        "seconds": seconds,
        "cold": cold,
        "settings": case.options,
        "goal": case.goal,
        "floor_images_per_s": median(floors),
        "peer_images_per_s": median(peer) if peer else None,
        "over_floor": median_ratio(rates, floors),
        "over_peer": median_ratio(rates, peer) if peer else None,
        "over_floor_rounds": [a / b for a, b in zip(rates, floors, strict=True)],
        "rates": ours[0]["rates"],
        "allowed_bytes": _allowed_bytes(ours[0], workers),
        **medians(ours),
    }


def _allowed_bytes(sample: dict[str, Any], workers: int) -> float:
    """Return what memory should stay within; the consumer imports torch, 350 MB of it."""
    held = (sample["batches_ahead"] + config.HELD_BATCHES) * sample["batch_bytes"]
    return float(sample["frame_cache_bytes"] + workers * _WORKER_BYTES + held + 350 * 10**6)


def run_once(
    case: Case,
    root: Path,
    workers: int,
    seconds: float,
    *,
    contestant: str = "robostream",
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what one contestant reaches, in a process of its own; see `run`.

    The process has the variables of this one, and those of `environment`.
    """
    request = {
        "contestant": contestant,
        "root": str(root),
        "batch_size": case.batch_size,
        "offsets": case.offsets,
        "options": case.options,
        "workers": workers,
        "max_batches": _PEER_BATCHES,
        "seconds": seconds,
    }
    done = subprocess.run(
        [sys.executable, "-m", "robostream.bench.loader_run", json.dumps(request)],
        env={**os.environ, **(environment or {})},
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _print(result: dict[str, Any]) -> None:
    rates = " ".join(str(rate) for rate in result["rates"][:10])
    print(
        f"{result['case']}, {result['workers']} workers: {result['over_floor']:.3f} of the floor "
        f"in rounds {[round(r, 3) for r in result['over_floor_rounds']]}; images/s in each 2 s "
        f"from the first batch on: {rates}",
        flush=True,
    )


def _table(results: list[dict[str, Any]]) -> str:
    header = ["case", "workers", "floor", "plain map-style", "robostream", "over floor", "goal"]
    header += ["over plain", "first batch s", "lowest", "decoded per delivered", "memory"]
    rows = [
        [
            result["case"],
            result["workers"],
            result["floor_images_per_s"],
            result["peer_images_per_s"] or "",
            result["images_per_s"],
            result["over_floor"],
            "" if result["goal"] is None else str(result["goal"]),
            result["over_peer"] or "",
            result["first_batch_s"],
            result["lowest_over_median"],
            result["amplification"],
            f"{format_bytes(result['tree_bytes'])}, "
            f"{result['tree_bytes'] / result['allowed_bytes']:.2f}",
        ]
        for result in results
    ]
    return format_table(header, rows)
