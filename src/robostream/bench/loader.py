# SPDX-License-Identifier: Apache-2.0
"""`bench loader`: the whole loader beside the decode floor and a plain map-style loader.

In each round the floor, the plain loader and robostream take turns on the same local dataset, each
in processes of its own, with equal workers and batch sizes. A ratio is the median over rounds of
the ratio within a round. Robostream streams two epochs and is timed from its first batch on, and
also from some seconds later on, when less is decoded ahead.

Unless `--cold` is given, as much memory as decoded frames may take is touched before robostream
runs: a virtual machine may have to wait for its host's memory, which is not the loader's doing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from robostream import config
from robostream.bench import results
from robostream.bench.loaders import open_plain, open_robostream
from robostream.bench.measure import (
    PAST_S,
    START_S,
    BenchCase,
    BenchData,
    measure_loading,
    run_rounds,
    select_named,
)
from robostream.bench.meta import measure_resume
from robostream.bench.processes import decode_floor, run_process, touch_memory, tree_bytes
from robostream.bench.results import DOCS, RESULTS, Column, Figures, Measured, Publication, Table
from robostream.byte_sizes import format_bytes
from robostream.loader import batch_bytes, frame_budget, share_of_cores, usable_memory
from robostream.tools import SynthSpec

# Many small files give the floor's processes equal work. Few different episodes are fast to make.
_SHORT = SynthSpec(episodes=320, min_frames=60, max_frames=100, distinct=32, video_file_mb=0.5)
_LARGE = replace(_SHORT, episodes=120, cameras=2, width=640, height=480, video_file_mb=2)
_AV1 = BenchData("av1", _SHORT)
_LONG_GOP = BenchData("h264", replace(_SHORT, codec="h264", gop=250, crf=23))
# Two epochs take minutes, so that their start counts for little.
_MANY = BenchData("av1-many", replace(_SHORT, episodes=3200, distinct=160))
_LONG = BenchData("av1-long", SynthSpec(episodes=96, distinct=16, video_file_mb=0.5))
# The most common dataset: fewer episodes than the pool mixes, and 34 GB once decoded.
_COMMON = BenchData(
    "av1-common",
    replace(_LARGE, episodes=50, min_frames=500, max_frames=500, cameras=3, distinct=4),
)
_SARM: dict[str, Any] = {"batch_size": 16, "window_s": PAST_S}
_SARM_1S = _SARM | {"window_s": tuple(-1.0 * step for step in range(7, -1, -1))}
_SMALL_POOL = {"episode_pool_size": 8, "lanes": 8}
# All decoded frames of a dataset may fit into memory. A limit shows larger datasets.
_2_GIB, _3_GIB, _4_GIB = ({"frame_cache_bytes": f"{size}GiB"} for size in (2, 3, 4))

CASES = (
    BenchCase("single", _AV1, goal=0.85),
    BenchCase("sarm", _AV1, goal=4.0, **_SARM),
    BenchCase("single, 3,200 episodes", _MANY, goal=0.82),
    BenchCase("sarm, 3,200 episodes", _MANY, goal=3.5, **_SARM),
    BenchCase("single float32", _AV1, options={"return_uint8": False}),
    BenchCase("single g=250", _LONG_GOP, goal=0.75),
    BenchCase("single 640x480 x 2", BenchData("av1-640", _LARGE), goal=0.85, options=_4_GIB),
    BenchCase("single 640x480 x 3, 50 episodes", _COMMON, goal=0.9, is_floor_random=True),
    BenchCase("single, 1.5 pools", _LONG, goal=0.65),
    BenchCase("sarm, 1.5 pools", _LONG, goal=2.5, **_SARM_1S),
    BenchCase("single, 2 GiB", _AV1, goal=0.85, options=_2_GIB),
    BenchCase("sarm, 3 GiB", _AV1, goal=4.0, options=_3_GIB, **_SARM),
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
) -> Measured:
    """Measure all cases; the arguments are those of the command."""
    cases, rows, text = select_named(CASES, only), [], ""
    touched: list[float] | None = None
    if not cold:
        touched = [touch_memory(_TOUCHED_BYTES) / 1e9 for _ in range(2)]
        speeds = "touching memory: {:.1f} GB/s the first time, {:.1f} GB/s the second"
        text = f"{speeds.format(*touched)}\n"
    for case, number in itertools.product(cases, workers or [share_of_cores(1)]):
        spec, small = case.data.spec, case.data
        if quick:  # a sixth of the episodes
            spec = replace(spec, episodes=max(8, spec.episodes // 6))
            small = BenchData(f"{case.data.name}-small", spec)
        measured = replace(case, data=small, workers=number)
        runs = _case_runs(measured, seconds, plain=plain, cold=cold)
        found = run_rounds(runs, rounds or (2 if quick else 3))
        fields = {"case": case.name, "workers": number, "seconds": seconds, "cold": cold}
        settings = {"settings": dict(case.options), "goal": case.goal}
        row = fields | settings | _summarize(found, number)
        rows.append(row)
        results.show_progress(
            f"{case.name}, {number} workers: {row['over_floor']:.3f} of the floor, in rounds "
            f"{[round(each, 3) for each in row['over_floor_rounds']]}; "
            f"images/s in each 2 s: {row['rates'][:10]}; limited by {row['limited_by']}"
        )
    text += f"{Table.of(rows, _COLUMNS).text()}\n{_LEGEND}"
    figures = {"machine": results.machine() | {"touch_gb_per_s": touched}, "cases": rows}
    if not only:
        figures["resume"], resumed = measure_resume(frames=10**6 if quick else 10**7)
        text += f"\n\n{resumed}"
    return figures, text


def _case_runs(case: BenchCase, seconds: float, *, plain: bool, cold: bool) -> dict[str, Any]:
    """Return what takes turns in each round."""
    files, workers = case.data.files(), case.workers or 1
    needed = 0 if cold else run_process(frame_memory, case=case)

    def floor() -> float:
        limit_s = seconds / 3
        return decode_floor(files, workers, at_most_s=limit_s, at_random=case.is_floor_random)

    def robostream() -> Any:
        touch_memory(needed)
        return run_process(measure_robostream, case=case, seconds=seconds)

    plain_run = {"plain": lambda: run_process(measure_plain, case=case)} if plain else {}
    return {"floor": floor, **plain_run, "robostream": robostream}


def _summarize(found: Mapping[str, Any], workers: int) -> Figures:
    ours, floors = found["robostream"], found["floor"]
    rates = [run["images_per_s"] for run in ours]
    later = [run["images_per_s_after_start"] for run in ours]
    plain = [run["images_per_s"] for run in found.get("plain", ())]
    held = (ours[0]["batches_ahead"] + config.HELD_BATCHES) * ours[0]["batch_bytes"]
    processes = workers * _WORKER_BYTES + _CONSUMER_BYTES
    return {
        "floor_images_per_s": median(floors),
        "peer_images_per_s": median(plain) if plain else None,
        "over_floor": median(results.ratios(rates, floors)),
        "over_peer": median(results.ratios(rates, plain)) if plain else None,
        "over_floor_rounds": results.ratios(rates, floors),
        "over_floor_after_start": median(results.ratios(later, floors)),
        "rates": ours[0]["rates"],
        "limited_by": ours[0]["limited_by"],
        "allowed_bytes": float(ours[0]["frame_cache_bytes"] + processes + held),
        **results.medians(ours),
    }


def measure_robostream(case: BenchCase, seconds: float) -> Figures:
    """Stream two epochs in this process; return rates, memory and counters."""
    loader, figures = measure_loading(
        case,
        open_robostream,
        batches_of=lambda loader: itertools.chain.from_iterable([loader] * _EPOCHS),
        seconds=seconds,
    )
    with closing(loader):
        stats, frames = loader.stats(), frame_budget(loader)
        return figures | {
            "amplification": stats["amplification"],
            "wait_s": stats["dataloading_s"],
            "limited_by": loader.limited_by(),
            "frame_cache_bytes": frames.nbytes,
            "frame_cache_reason": frames.reason,
            "batch_bytes": batch_bytes(loader),
            "batches_ahead": loader.prefetch_factor,
            "lanes": loader.stream.lanes,
            "tree_bytes": tree_bytes(),
        }


def measure_plain(case: BenchCase) -> Figures:
    """Read some random batches through the plain map-style dataset in this process."""
    return measure_loading(case, open_plain, max_batches=_PLAIN_BATCHES)[1]


def frame_memory(case: BenchCase) -> int:
    """Return the memory that decoded frames may take, at most half of what is free."""
    with closing(open_robostream(case)) as loader:
        return min(frame_budget(loader).nbytes, usable_memory() // 2)


def _measured(case: Figures) -> str:
    measured = f"first {case['seconds']:.0f} s" if case["seconds"] else "two epochs"
    # Rows without this field are older than `--cold`, and were all measured cold.
    return f"{measured}, cold" if case.get("cold", True) else measured


def _over_floor(case: Figures) -> object:
    later = case.get("over_floor_after_start")  # older rows have none
    return case["over_floor"] if later is None else f"{case['over_floor']:.3g}; later {later:.3g}"


_LEGEND = f"""\
over floor: images/s over those of PyAV decoding the same files in order, in as many processes as \
workers
after start: the same, from {START_S:.0f} s after the first batch on
lowest: the lowest rate in 2 s of the first 20 s, over the median
memory: of all processes, over frame cache + 150 MB per worker + batches + the consumer"""
_COLUMNS: dict[str, Column] = {
    "case": "case",
    "workers": "workers",
    "floor": "floor_images_per_s",
    "plain map-style": lambda result: result["peer_images_per_s"] or "",
    "robostream": "images_per_s",
    "over floor": "over_floor",
    "after start": "over_floor_after_start",
    "goal": lambda result: "" if result["goal"] is None else str(result["goal"]),
    "over plain": lambda result: result["over_peer"] or "",
    "first batch s": "first_batch_s",
    "lowest": "lowest_over_median",
    "decoded per delivered": "amplification",
    "memory": lambda result: (
        f"{format_bytes(result['tree_bytes'])}, "
        f"{result['tree_bytes'] / result['allowed_bytes']:.2f}"
    ),
}
_DOCS_COLUMNS: dict[str, Column] = {
    "case": "case",
    "workers": "workers",
    "measured": _measured,
    "raw decode speed, images/s": "floor_images_per_s",
    "images/s": "images_per_s",
    "times raw decode speed": _over_floor,
    "first batch, s": "first_batch_s",
    "lowest 2 s over the median": "lowest_over_median",
    "decoded per delivered": "amplification",
    "memory, GB": lambda case: case["tree_bytes"] / 1e9,
    "of what it may take": lambda case: case["tree_bytes"] / case["allowed_bytes"],
}


def _docs_block(repo: Path) -> str:
    """Return the tables of all machines, the smallest first."""
    found = [results.read_figures(path) for path in (repo / RESULTS).glob("loader-*-cores.json")]
    return "\n\n".join(
        f"On {results.describe_cores(figures)}:\n\n"
        + Table.of(figures["cases"], _DOCS_COLUMNS).markdown()
        for figures in sorted(found, key=lambda figures: int(figures["machine"]["cpus"]))
    )


PUBLICATION = Publication(
    "loader-{machine[cpus]}-cores.json",
    {DOCS: {"loader": _docs_block}},
    keys={"cases": ("case", "workers")},
)
