# SPDX-License-Identifier: Apache-2.0
"""`bench peers`, also `make bench-peers`: robostream beside other loaders on the same files.

All loaders take turns in each round, each run in a process of its own. Then each delivers a whole
epoch of a small dataset, whose images are checked.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robostream import config
from robostream.bench.case import BenchCase, BenchData
from robostream.bench.delivery import check_delivery
from robostream.bench.docs import RESULTS, Publication, publish
from robostream.bench.loaders import LOADERS, LoaderEntry, LoadRequest
from robostream.bench.measure import consume, limit_time, run_rounds
from robostream.bench.process import MeasurementError, run_process
from robostream.bench.results import (
    Figures,
    ensure_writable,
    machine,
    median_ratio,
    medians,
    package_version,
    read_figures,
    select_named,
    write_json,
)
from robostream.bench.suite import DATASETS
from robostream.bench.table import format_table, markdown_table
from robostream.errors import RobostreamError
from robostream.loader import share_of_cores
from robostream.tools import SynthSpec

_TIMEOUT_S = 300
_FPS = 5
_SARM_S = tuple(float(step) for step in range(8))
# LeRobot's default of 200 MB per file puts many episodes into one.
_ONE_FILE = BenchData(
    "suite",
    replace(DATASETS["av1"].spec, video_file_mb=config.VIDEO_FILES_SIZE_IN_MB),
    f"{DATASETS['av1'].title}, one file per camera",
)
CASES = {
    case.name: case
    for case in (
        BenchCase("av1-single", DATASETS["av1"]),
        BenchCase("av1-one-file-single", _ONE_FILE),
        BenchCase("av1-sarm", DATASETS["av1"], window_s=_SARM_S),
        BenchCase("h264-single", DATASETS["h264"]),
        BenchCase("images-single", DATASETS["images"]),
    )
}
# Small enough to check every image, with several files, as large datasets have.
_CHECKED = SynthSpec(
    episodes=12,
    min_frames=18,
    max_frames=26,
    cameras=2,
    width=96,
    height=96,
    fps=_FPS,
    crf=18,
    data_file_mb=0.01,
    video_file_mb=0.1,
)
_CHECKED_DATA = (
    BenchData("peers-check", _CHECKED, "video, several files"),
    BenchData(
        "peers-check", replace(_CHECKED, data_file_mb=100, video_file_mb=200), "video, one file"
    ),
    BenchData(
        "peers-check", replace(_CHECKED, image_cameras=2, data_file_mb=1), "images, several files"
    ),
)
_PACKAGES = ("lerobot", "torchcodec", "datasets", "torch", "av")
RESULTS_NAME = "peers.json"


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, write the JSON, and refresh a checkout if one is given."""
    ensure_writable(args.out)
    begin = time.perf_counter()
    workers = args.workers or share_of_cores(1)
    figures = compare(args.only, args.events, workers, rounds=args.rounds, seconds=args.seconds)
    figures["seconds"] = time.perf_counter() - begin
    write_json(args.out / RESULTS_NAME, figures)
    print(tables_text(figures))
    print(f"written to {args.out / RESULTS_NAME}; {figures['seconds']:.0f} s in all")
    if args.repo is not None:
        publish(args.repo, RESULTS_NAME, figures, PUBLICATION)
    return 0


def compare(
    only: Sequence[str], names: Sequence[str], workers: int, *, rounds: int, seconds: float
) -> Figures:
    """Return the rates of all loaders whose packages are installed, and what they deliver.

    Args:
        only: Names of loaders; all if empty.
        names: Names of cases; all if empty.
        workers: Worker processes of each loader.
        rounds: How often each loader is measured.
        seconds: How long each run is measured.
    """
    config.quiet_encoders()
    chosen, cases = select_named(LOADERS, only), select_named(CASES, names)
    present = [entry for entry in chosen if not entry.package or find_spec(entry.package)]
    results = [
        row for case in cases for row in _compare_case(case, present, workers, rounds, seconds)
    ]
    delivery = [
        {"contestant": entry.name, "stored": data.title, **_check(entry, data)}
        for data in _CHECKED_DATA
        for entry in present
        if _stored(data) in entry.stored
    ]
    return {
        "machine": machine(),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "absent": [entry.name for entry in chosen if entry not in present],
        "workers": workers,
        "batch_size": 32,
        "rounds": rounds,
        "results": results,
        "delivery": delivery,
    }


def _stored(data: BenchData) -> str:
    return "image" if data.spec.image_cameras else "video"


def _compare_case(
    case: BenchCase, present: Sequence[LoaderEntry], workers: int, rounds: int, seconds: float
) -> list[Figures]:
    request = LoadRequest(str(case.data.open()), case.batch_size, workers, case.window_s)
    entries = [entry for entry in present if _stored(case.data) in entry.stored]

    def print_one(number: int, name: str, figures: Figures) -> None:
        text = figures.get("failed") or f"{figures['images_per_s']:,.0f} images/s"
        print(f"{case.data.title}, {case.mode}, round {number + 1}, {name}: {text}", flush=True)

    runs = {
        entry.name: functools.partial(_run, measure_speed, entry, request, seconds=seconds)
        for entry in entries
    }
    found = run_rounds(runs, rounds, on_result=print_one)
    row = {"data": case.data.title, "mode": case.mode}
    return [
        {**row, "contestant": entry.name, "how": entry.how, **_summarize(found[entry.name])}
        for entry in entries
    ]


def _summarize(runs: Sequence[Figures]) -> Figures:
    failed = [figures["failed"] for figures in runs if "failed" in figures]
    if failed:
        return {"failed": failed[0]}
    rates = [figures["images_per_s"] for figures in runs]
    return {**medians(runs), "images_per_s_rounds": rates}


def _check(entry: LoaderEntry, data: BenchData) -> Figures:
    found = _run(measure_delivery, entry, LoadRequest(str(data.open()), 8, 1))
    print(f"delivery of {entry.name}: {found}", flush=True)
    return found


def _run(function: Any, entry: LoaderEntry, request: LoadRequest, **more: Any) -> Figures:
    """Return the figures of one run in a process of its own, or the reason of its failure."""
    arguments = {"name": entry.name, "request": dataclasses.asdict(request), **more}
    environment = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")}  # all files are local
    try:
        found: Figures = run_process(
            function, environment=environment, timeout_s=_TIMEOUT_S, **arguments
        )
    except MeasurementError as error:
        return {"failed": error.reason}
    return found


def measure_speed(name: str, request: dict[str, Any], seconds: float) -> Figures:
    """Load batches in this process until the time is up or the epoch ends; return the rates."""
    import torch

    torch.set_num_threads(1)
    asked = LoadRequest(**request)
    begin = time.perf_counter()
    batches = LOADERS[name].open(asked)
    opened_s = time.perf_counter() - begin
    times = consume(limit_time(batches, seconds))
    if not times.num_measured:
        raise RobostreamError("no batch arrived after the first one")
    rate = times.num_measured / times.steady_s
    return {
        "samples_per_s": rate,
        "images_per_s": rate * asked.images_per_sample,
        "first_batch_s": opened_s + times.arrivals_s[0],
        "samples": times.num_measured,
    }


def measure_delivery(name: str, request: dict[str, Any]) -> Figures:
    """Check what a loader delivers, in this process."""
    import torch

    torch.set_num_threads(1)
    return check_delivery(LOADERS[name], LoadRequest(**request))


_SPEED = ["data", "mode", "loader", "used with", "samples/s", "images/s"]
_SPEED += ["robostream is faster", "first batch, s"]
_DELIVERY = ["loader", "cameras", "frames missing", "frames repeated", "wrong images"]
_DELIVERY += ["same order with another worker", "episodes per batch of 8"]


def tables_text(figures: Figures) -> str:
    """Return the tables for a terminal. Pure."""
    tables = [
        format_table(_SPEED, _speed_rows(figures["results"])),
        format_table(_DELIVERY, [_delivery_row(row) for row in figures["delivery"]]),
    ]
    return "\n\n".join([*tables, "\n".join(_remarks(figures))])


def _docs_block(repo: Path) -> str:
    """Return the tables of docs/benchmarks.md."""
    figures = read_figures(repo / RESULTS / RESULTS_NAME)
    versions = ", ".join(
        f"{name} {number}" for name, number in figures["packages"].items() if number
    )
    return "\n\n".join(
        [
            f"On {figures['machine']['cpus']} cores of {figures['machine']['cpu']}; "
            f"{figures['workers']} workers each, batches of {figures['batch_size']}, uint8; "
            f"medians of {figures['rounds']} interleaved rounds. {versions}.",
            markdown_table(_SPEED, _speed_rows(figures["results"])),
            "What each delivers in one epoch of a small dataset; every image is compared with the "
            "one decoded from the file:",
            markdown_table(_DELIVERY, [_delivery_row(row) for row in figures["delivery"]]),
            "\n".join(f"- {remark}" for remark in _remarks(figures)),
        ]
    ).rstrip()


def _remarks(figures: Figures) -> list[str]:
    """Return why some loaders have no figures, each reason once."""
    failed = [
        f"{row['contestant']} failed ({row.get('data') or row['stored']}): {row['failed']}"
        for row in (*figures["results"], *figures["delivery"])
        if "failed" in row
    ]
    absent = [f"{name} is left out: its package is not installed" for name in figures["absent"]]
    return [*dict.fromkeys(failed), *absent]


def _speed_rows(results: Sequence[Figures]) -> list[list[Any]]:
    ours = {
        (row["data"], row["mode"]): row["images_per_s_rounds"]
        for row in results
        if row["contestant"] == "robostream" and "failed" not in row
    }
    return [_speed_row(row, ours.get((row["data"], row["mode"]))) for row in results]


def _speed_row(row: Figures, ours: list[float] | None) -> list[Any]:
    begin = [row["data"], row["mode"], row["contestant"], row["how"]]
    if "failed" in row:
        return [*begin, "failed", "", "", ""]
    faster = ""
    if ours and row["contestant"] != "robostream":
        faster = f"{median_ratio(ours, row['images_per_s_rounds']):.1f} times"
    return [*begin, row["samples_per_s"], row["images_per_s"], faster, row["first_batch_s"]]


def _delivery_row(row: Figures) -> list[Any]:
    begin = [row["contestant"], row["stored"]]
    if "failed" in row:
        return [*begin, "failed", "", "", "", ""]
    return [
        *begin,
        f"{row['missing']} of {row['frames']}",
        row["repeated"],
        f"{row['wrong_pictures']} of {row['pictures']}",
        "yes" if row["same_order_with_more_workers"] else "no",
        row["episodes_per_batch"],
    ]


PUBLICATION = Publication(Path("docs/benchmarks.md"), {"peers": _docs_block})
