# SPDX-License-Identifier: Apache-2.0
"""`bench suite`, also `make bench`: everything small, in minutes, and the README's figures.

All cases run in turn, several times, so a disturbance of the machine affects all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robostream import config
from robostream.bench.case import BenchCase, BenchData, one_row_group
from robostream.bench.charts import require_matplotlib
from robostream.bench.docs import publish
from robostream.bench.measure import run_rounds
from robostream.bench.process import MeasurementError, run_process
from robostream.bench.readme import PUBLICATION, SUITE_NAME, suite_text
from robostream.bench.report import write_report
from robostream.bench.results import (
    Figures,
    ensure_writable,
    machine,
    median_ratio,
    medians,
    save_run,
    write_json,
)
from robostream.bench.stream import measure_in_process
from robostream.bench.stream_settings import WARMUP_BATCHES, StreamSettings
from robostream.errors import RobostreamError
from robostream.tools import SynthSpec

# Many more episodes than the pool holds, so the pool matters. Few of them differ, which makes the
# dataset faster to create and does not change the cost of decoding. At 5 frames/s, windows of 7 s
# fit into most of them.
_AV1 = SynthSpec(episodes=256, distinct=32, min_frames=24, max_frames=40, fps=5, video_file_mb=0.25)
DATASETS = {
    "av1": BenchData("suite", _AV1, "3 cameras 256x256, AV1, key frame every 2"),
    "av1-640": BenchData(
        "suite",
        replace(_AV1, episodes=128, distinct=16, cameras=2, width=640, height=480),
        "2 cameras 640x480, AV1, key frame every 2",
    ),
    "h264": BenchData(
        "suite",
        replace(_AV1, codec="h264", gop=250, crf=28),
        "3 cameras 256x256, H.264, key frame every 250",
    ),
    "images": BenchData(
        "suite",
        replace(_AV1, episodes=96, distinct=24, cameras=1, image_cameras=1),
        "1 camera 256x256, PNG in Parquet",
    ),
    "av1-one-group": BenchData(
        "suite", _AV1, "as the first, one row group per Parquet file", one_row_group
    ),
}
_SARM_S = tuple(float(step) for step in range(8))
CASES = (
    BenchCase("nothing-set", DATASETS["av1"]),
    BenchCase("nothing-set", DATASETS["av1"], 16, _SARM_S),
    BenchCase("one-worker", DATASETS["av1"], workers=1, setting="1 worker"),
    BenchCase(
        "small-cache",
        DATASETS["av1"],
        options={"frame_cache_bytes": "512MiB"},
        setting="frame cache of 512 MiB, a quarter of the images",
    ),
    BenchCase("one-row-group", DATASETS["av1-one-group"]),
    BenchCase("av1-640x480", DATASETS["av1-640"]),
    BenchCase("h264-g250", DATASETS["h264"]),
    BenchCase("images", DATASETS["images"]),
)
# The case whose first minute is shown.
_FIRST_MINUTE = CASES[0]
_MINUTE_S = 60.0
_FLOOR_S = 2.0
# A sample of mode sarm has many images, so fewer samples take equally long.
_SARM_BATCHES = 80
# Fields that identify the machine of a run; published files leave them out.
_PRIVATE = ("root", "data_files_root", "node", "definitions", "machine")
# Measured once each, at their small sizes.
_OTHERS = ("meta", "plan", "shuffle", "node", "decode", "remote")


def run(args: argparse.Namespace) -> int:
    """Measure everything, write the results, and refresh a checkout if one is given."""
    ensure_writable(args.out)
    if args.repo is not None:
        require_matplotlib()  # now, not after minutes
    figures = measure(args.out, args.rounds)
    write_json(args.out / SUITE_NAME, figures)
    write_report(args.out / "suite", title="make bench")
    print(suite_text(figures))
    print(f"written to {args.out}; {figures['seconds']:.0f} s in all")
    if args.repo is not None:
        publish(args.repo, SUITE_NAME, figures, PUBLICATION)
    return 0


def measure(out: Path, rounds: int) -> Figures:
    """Return the figures of the whole suite."""
    from robostream.bench import load_benchmark

    config.quiet_encoders()
    for data in DATASETS.values():
        data.open()  # before the clock starts
    begin = time.perf_counter()
    streamed = run_cases(CASES, rounds=rounds, out=out / "suite")
    minute = _run_case(_FIRST_MINUTE, out / "first-minute", at_most_s=_MINUTE_S, num_batches=10**9)
    others = {}
    for name in _OTHERS:
        print(f"\n== {name}", flush=True)
        others[name] = load_benchmark(name)(quick=True)
    return {
        "machine": machine(),
        "rounds": rounds,
        "seconds": time.perf_counter() - begin,
        "cases": [case_figures(case, found) for case, found in zip(CASES, streamed, strict=True)],
        "first_minute": public_figures(minute),
        **others,
    }


def run_cases(cases: Sequence[BenchCase], *, rounds: int, out: Path) -> list[list[Figures]]:
    """Return the figures of each case in each round; write each run to `out`, too."""
    shutil.rmtree(out, ignore_errors=True)
    counts = [0] * len(cases)

    def run_one(number: int) -> Figures:
        case, folder = cases[number], out / f"round-{counts[number]}"
        counts[number] += 1
        return _run_case(case, folder, num_batches=_epoch_batches(case))

    def print_one(round_number: int, number: int, figures: Figures) -> None:
        print(
            f"round {round_number + 1}: {cases[number].name} {cases[number].mode}: "
            f"{figures['images_per_s']:,.0f} images/s, "
            f"floor {figures['floor_images_per_s']:,.0f}",
            flush=True,
        )

    runs = {number: functools.partial(run_one, number) for number in range(len(cases))}
    return list(run_rounds(runs, rounds, on_result=print_one).values())


def case_figures(case: BenchCase, runs: Sequence[Figures]) -> Figures:
    """Return the published figures of a case: medians, and the ratio to the floor by round."""
    rates = [figures["images_per_s"] for figures in runs]
    floors = [figures["floor_images_per_s"] for figures in runs]
    return {
        "name": case.name,
        "data": case.data.title,
        "mode": case.mode,
        "setting": case.setting,
        **medians(runs),
        "over_floor": median_ratio(rates, floors),
        "over_floor_rounds": [a / b for a, b in zip(rates, floors, strict=True)],
    }


def public_figures(figures: Mapping[str, Any]) -> Figures:
    """Return figures without the fields that identify their machine. Pure."""
    return {name: value for name, value in figures.items() if name not in _PRIVATE}


def _epoch_batches(case: BenchCase) -> int:
    """Return the batches of an epoch after the warm-up; later epochs may find frames cached."""
    info: dict[str, Any] = json.loads((case.data.open() / "meta" / "info.json").read_text())
    whole = int(info["total_frames"]) // case.batch_size - WARMUP_BATCHES
    return whole if case.mode == "single" else min(whole, _SARM_BATCHES)


def _run_case(case: BenchCase, out: Path, **limits: Any) -> Figures:
    """Run `bench stream` in a process of its own; only what the case sets differs from defaults."""
    settings = StreamSettings(
        f"bench/{case.name}",
        root=str(case.data.open()),
        source=case.name,
        mode=case.mode,
        batch_size=case.batch_size,
        num_workers=case.workers,
        prefetch_factor=None,
        floor_s=_FLOOR_S,
        **case.options,
        **limits,
    )
    try:
        name, figures = run_process(measure_in_process, settings=dataclasses.asdict(settings))
    except MeasurementError as error:
        raise RobostreamError(f"{case.name} {case.mode} failed: {error.reason}") from error
    save_run(out, name, figures)
    found: Figures = figures
    return found
