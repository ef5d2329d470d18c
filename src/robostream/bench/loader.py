# SPDX-License-Identifier: Apache-2.0
"""`bench loader`: the whole loader beside the decode floor and a plain map-style loader.

In each round the floor, the plain loader and robostream take turns on the same local dataset, each
in processes of its own, with equal workers and batch sizes. A ratio is the median over rounds of
the ratio within a round. Robostream streams two epochs and is timed from its first batch on.

Unless `--cold` is given, as much memory as decoded frames may take is touched before robostream
runs: a virtual machine may have to wait for its host's memory, which is not the loader's doing.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from robostream import config
from robostream.bench.case import BenchCase, BenchData, LoadRequest
from robostream.bench.floor import decode_floor, random_floor
from robostream.bench.loaders import open_plain, open_robostream
from robostream.bench.measure import consume, limit_time, loading_figures, run_rounds
from robostream.bench.processes import run_process, touch_memory, tree_bytes
from robostream.bench.results import (
    Figures,
    machine,
    median_ratio,
    medians,
    read_figures,
    select_named,
)
from robostream.bench.rows import measure_resume
from robostream.bench.tables import RESULTS, Column, Publication, markdown_of, publish, table_of
from robostream.byte_sizes import format_bytes
from robostream.loader import batch_bytes, frame_budget, share_of_cores, usable_memory
from robostream.tools import SynthSpec

# Many small files give the floor's processes equal work. Few different episodes are fast to make.
_SHORT = SynthSpec(episodes=320, min_frames=60, max_frames=100, distinct=32, video_file_mb=0.5)
_LARGE = dataclasses.replace(
    _SHORT, episodes=120, cameras=2, width=640, height=480, video_file_mb=2
)
_AV1 = BenchData("av1", _SHORT)
_LONG_GOP = BenchData("h264", dataclasses.replace(_SHORT, codec="h264", gop=250, crf=23))
_LONG = BenchData("av1-long", SynthSpec(episodes=96, distinct=16, video_file_mb=0.5))
# The most common dataset: fewer episodes than the pool mixes, and 34 GB once decoded.
_COMMON = BenchData(
    "av1-common",
    dataclasses.replace(_LARGE, episodes=50, min_frames=500, max_frames=500, cameras=3, distinct=4),
)
_SARM: dict[str, Any] = {
    "batch_size": 16,
    "window_s": tuple(-0.4 * step for step in range(7, -1, -1)),
}
_SARM_1S = _SARM | {"window_s": tuple(-1.0 * step for step in range(7, -1, -1))}
_SMALL_POOL = {"episode_pool_size": 8, "lanes": 8}

CASES = (
    BenchCase("single", _AV1, goal=0.85),
    BenchCase("sarm", _AV1, goal=4.0, **_SARM),
    BenchCase("single float32", _AV1, options={"return_uint8": False}),
    BenchCase("single g=250", _LONG_GOP, goal=0.75),
    BenchCase(
        "single 640x480 x 2",
        BenchData("av1-640", _LARGE),
        goal=0.85,
        options={"frame_cache_bytes": "4GiB"},
    ),
    BenchCase("single 640x480 x 3, 50 episodes", _COMMON, goal=0.9, is_floor_random=True),
    BenchCase("single, 1.5 pools", _LONG, goal=0.65),
    BenchCase("sarm, 1.5 pools", _LONG, goal=2.5, **_SARM_1S),
    # All decoded frames of this dataset may fit into memory. A limit shows larger datasets.
    BenchCase("single, 2 GiB", _AV1, goal=0.85, options={"frame_cache_bytes": "2GiB"}),
    BenchCase("sarm, 3 GiB", _AV1, goal=4.0, options={"frame_cache_bytes": "3GiB"}, **_SARM),
    BenchCase("single, pool 8", _AV1, options=_SMALL_POOL),
    BenchCase("sarm, pool 8", _AV1, options=_SMALL_POOL, **_SARM),
)
# The plain loader is too slow for whole epochs; it delivers this many batches.
_PLAIN_BATCHES = 8
_EPOCHS = 2
_WORKER_BYTES = 150 * 10**6
_CONSUMER_BYTES = 350 * 10**6  # it imports torch
_TOUCHED_BYTES = 1 << 30


def run(
    quick: bool,
    workers: Sequence[int] = (),
    only: Sequence[str] = (),
    rounds: int | None = None,
    seconds: float = 0.0,
    plain: bool = True,
    cold: bool = False,
) -> Figures:
    """Measure, print the tables, and return the figures.

    Args:
        quick: Smaller datasets and fewer rounds.
        workers: Numbers of worker processes, measured one after the other.
        only: Names of the cases to measure; all if empty.
        rounds: How often each case is measured.
        seconds: The time limit of the floor and robostream; 0 for whole epochs.
        plain: Whether to measure the plain map-style loader.
        cold: Whether to leave memory untouched before robostream runs.
    """
    config.quiet_encoders()
    cases = select_named({case.name: case for case in CASES}, only)
    touched = None if cold else _touch_twice()
    results = []
    for case in map(_shrink, cases) if quick else cases:
        for number in workers or [share_of_cores(1)]:
            runs = _case_runs(case, number, seconds, plain=plain, cold=cold)
            found = run_rounds(runs, rounds or (2 if quick else 3))
            results.append(_case_figures(case, number, seconds, found, cold=cold))
            _print_case(results[-1])
    print(table_of(results, _COLUMNS), flush=True)
    print(
        "over floor: images/s over those of PyAV decoding the same files in order, in as many "
        "processes as workers\nlowest: the lowest rate in 2 s of the first 20 s, over the median\n"
        "memory: of all processes, over frame cache + 150 MB per worker + batches + the consumer"
    )
    figures = {"machine": machine() | {"touch_gb_per_s": touched}, "cases": results}
    if not only:
        figures["resume"] = measure_resume(frames=10**6 if quick else 10**7)
    return figures


def _shrink(case: BenchCase) -> BenchCase:
    """Return the case with a sixth of the episodes."""
    spec = dataclasses.replace(case.data.spec, episodes=max(8, case.data.spec.episodes // 6))
    return dataclasses.replace(case, data=BenchData(f"{case.data.name}-small", spec))


def _touch_twice() -> list[float]:
    """Return GB/s of writing to memory for the first and the second time."""
    rates = [touch_memory(_TOUCHED_BYTES) / 1e9 for _ in range(2)]
    print(f"touching memory: {rates[0]:.1f} GB/s the first time, {rates[1]:.1f} GB/s the second")
    return rates


def _case_runs(
    case: BenchCase, workers: int, seconds: float, *, plain: bool, cold: bool
) -> dict[str, Any]:
    """Return what takes turns in each round."""
    files = sorted(map(str, case.data.open().glob("videos/**/*.mp4")))
    floor = random_floor if case.is_floor_random else decode_floor
    needed = 0 if cold else run_once(case, workers, 0, function=frame_memory)["bytes"]

    def robostream() -> Figures:
        touch_memory(needed)
        return run_once(case, workers, seconds)

    runs = {
        "floor": lambda: floor(files, workers, at_most_s=seconds / 3),
        "plain": lambda: run_once(case, workers, seconds, function=measure_plain),
        "robostream": robostream,
    }
    return {name: run for name, run in runs.items() if plain or name != "plain"}


def _case_figures(
    case: BenchCase, workers: int, seconds: float, found: Mapping[str, Any], *, cold: bool
) -> Figures:
    ours, floors = found["robostream"], found["floor"]
    rates = [sample["images_per_s"] for sample in ours]
    plain = [sample["images_per_s"] for sample in found.get("plain", [])]
    return {
        "case": case.name,
        "workers": workers,
        "seconds": seconds,
        "cold": cold,
        "settings": dict(case.options),
        "goal": case.goal,
        "floor_images_per_s": median(floors),
        "peer_images_per_s": median(plain) if plain else None,
        "over_floor": median_ratio(rates, floors),
        "over_peer": median_ratio(rates, plain) if plain else None,
        "over_floor_rounds": [a / b for a, b in zip(rates, floors, strict=True)],
        "rates": ours[0]["rates"],
        "allowed_bytes": _allowed_bytes(ours[0], workers),
        **medians(ours),
    }


def _allowed_bytes(sample: Figures, workers: int) -> float:
    """Return the memory that the loader may take."""
    held = (sample["batches_ahead"] + config.HELD_BATCHES) * sample["batch_bytes"]
    return float(sample["frame_cache_bytes"] + workers * _WORKER_BYTES + held + _CONSUMER_BYTES)


def measure_robostream(request: dict[str, Any], seconds: float) -> Figures:
    """Stream two epochs in this process; return rates, memory and counters."""
    torch.set_num_threads(1)
    asked = LoadRequest(**request)
    begin = time.perf_counter()
    loader = open_robostream(asked)
    opened_s = time.perf_counter() - begin
    batches: Iterator[Any] = (batch for _ in range(_EPOCHS) for batch in loader)
    times = consume(limit_time(batches, seconds))
    stats, frames = loader.stats(), frame_budget(loader)
    images = asked.images_per_sample
    figures = loading_figures(times, images_per_sample=images, opened_s=opened_s) | {
        "amplification": stats["amplification"],
        "wait_s": stats["dataloading_s"],
        "frame_cache_bytes": frames.nbytes,
        "frame_cache_reason": frames.reason,
        "batch_bytes": batch_bytes(loader),
        "batches_ahead": loader.prefetch_factor,
        "lanes": loader.stream.lanes,
        "tree_bytes": tree_bytes(),
    }
    loader.close()
    return figures


def measure_plain(request: dict[str, Any], seconds: float) -> Figures:
    """Read some random batches through the plain map-style dataset in this process."""
    del seconds
    torch.set_num_threads(1)
    asked = LoadRequest(**request)
    begin = time.perf_counter()
    batches = open_plain(asked)
    opened_s = time.perf_counter() - begin
    times = consume(batches, max_batches=_PLAIN_BATCHES)
    return loading_figures(times, images_per_sample=asked.images_per_sample, opened_s=opened_s)


def frame_memory(request: dict[str, Any], seconds: float) -> Figures:
    """Return the memory that decoded frames may take, at most half of what is free."""
    del seconds
    loader = open_robostream(LoadRequest(**request))
    needed = frame_budget(loader).nbytes
    loader.close()
    return {"bytes": min(needed, usable_memory() // 2)}


def run_once(
    case: BenchCase,
    workers: int,
    seconds: float,
    *,
    function: Any = measure_robostream,
    environment: Mapping[str, str] | None = None,
) -> Figures:
    """Return the figures of one run in a process of its own."""
    request = dataclasses.asdict(case.request(workers))
    result: Figures = run_process(
        function, environment=environment, request=request, seconds=seconds
    )
    return result


def _print_case(result: Figures) -> None:
    rates = " ".join(str(rate) for rate in result["rates"][:10])
    print(
        f"{result['case']}, {result['workers']} workers: {result['over_floor']:.3f} of the floor "
        f"in rounds {[round(r, 3) for r in result['over_floor_rounds']]}; images/s in each 2 s "
        f"from the first batch on: {rates}",
        flush=True,
    )


def _goal(result: Figures) -> str:
    return "" if result["goal"] is None else str(result["goal"])


def _memory(result: Figures) -> str:
    share = result["tree_bytes"] / result["allowed_bytes"]
    return f"{format_bytes(result['tree_bytes'])}, {share:.2f}"


_COLUMNS: dict[str, Column] = {
    "case": "case",
    "workers": "workers",
    "floor": "floor_images_per_s",
    "plain map-style": lambda result: result["peer_images_per_s"] or "",
    "robostream": "images_per_s",
    "over floor": "over_floor",
    "goal": _goal,
    "over plain": lambda result: result["over_peer"] or "",
    "first batch s": "first_batch_s",
    "lowest": "lowest_over_median",
    "decoded per delivered": "amplification",
    "memory": _memory,
}


def publish_figures(repo: Path, figures: Figures) -> None:
    """Write the figures to a checkout, by its machine's cores; other rows and machines stay."""
    name = f"loader-{figures['machine']['cpus']}-cores.json"
    publish(repo, name, figures, PUBLICATION, merge=_merge)


def _merge(known: Figures, new: Figures) -> Figures:
    cases = {(case["case"], case["workers"]): case for case in known["cases"] + new["cases"]}
    return new | {"cases": list(cases.values())}


def _measured(case: Figures) -> str:
    measured = f"first {case['seconds']:.0f} s" if case["seconds"] else "two epochs"
    # Rows without this field are older than `--cold`, and were all measured cold.
    return f"{measured}, cold" if case.get("cold", True) else measured


_DOCS_COLUMNS: dict[str, Column] = {
    "case": "case",
    "workers": "workers",
    "measured": _measured,
    "raw decode speed, images/s": "floor_images_per_s",
    "images/s": "images_per_s",
    "times raw decode speed": "over_floor",
    "first batch, s": "first_batch_s",
    "lowest 2 s over the median": "lowest_over_median",
    "decoded per delivered": "amplification",
    "memory, GB": lambda case: case["tree_bytes"] / 1e9,
    "of what it may take": lambda case: case["tree_bytes"] / case["allowed_bytes"],
}


def _docs_block(repo: Path) -> str:
    """Return the tables of all machines, the smallest first."""
    found = [read_figures(path) for path in (repo / RESULTS).glob("loader-*-cores.json")]
    return "\n\n".join(
        f"On {figures['machine']['cpus']} cores of {figures['machine']['cpu']}:\n\n"
        + markdown_of(figures["cases"], _DOCS_COLUMNS)
        for figures in sorted(found, key=lambda figures: int(figures["machine"]["cpus"]))
    )


PUBLICATION = Publication(Path("docs/benchmarks.md"), {"loader": _docs_block})
