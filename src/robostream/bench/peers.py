# SPDX-License-Identifier: Apache-2.0
"""`bench peers`, also `make bench-peers`: robostream beside other loaders on the same files.

All loaders take turns in each round, each run in a process of its own. Then each delivers a whole
epoch of a small dataset, whose images are checked. The README's chart and sentence, robostream
beside LeRobot, are made from the same figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from robostream import config
from robostream.bench import charts, results
from robostream.bench.loaders import LOADERS, LoaderEntry, OpenLoader, count_delivered
from robostream.bench.measure import (
    SARM_S,
    BenchCase,
    BenchData,
    measure_loading,
    run_rounds,
    select_named,
)
from robostream.bench.processes import MeasurementError, run_process
from robostream.bench.results import DOCS, Column, Figures, Measured, Publication, Table
from robostream.bench.suite import DATASETS
from robostream.loader import share_of_cores
from robostream.tools import SynthSpec

_TIMEOUT_S = 300
_AV1 = DATASETS["av1"]
# LeRobot's default of 200 MB per file puts many episodes into one.
_ONE_FILE = replace(
    _AV1,
    spec=replace(_AV1.spec, video_file_mb=config.VIDEO_FILES_SIZE_IN_MB),
    title=f"{_AV1.title}, one file per camera",
)
CASES = (
    BenchCase("av1-single", _AV1),
    BenchCase("av1-one-file-single", _ONE_FILE),
    BenchCase("av1-sarm", _AV1, window_s=SARM_S),
    BenchCase("h264-single", DATASETS["h264"]),
    BenchCase("images-single", DATASETS["images"]),
)
# Small enough to check every image, with several files, as large datasets have.
_TINY: dict[str, Any] = {"cameras": 2, "width": 96, "height": 96, "fps": 5, "crf": 18}
_CHECKED = SynthSpec(
    episodes=12, min_frames=18, max_frames=26, data_file_mb=0.01, video_file_mb=0.1, **_TINY
)
_CHECKED_SPECS = {
    "video, several files": _CHECKED,
    "video, one file": replace(_CHECKED, data_file_mb=100, video_file_mb=200),
    "images, several files": replace(_CHECKED, image_cameras=2, data_file_mb=1),
}
_PACKAGES = ("lerobot", "torchcodec", "datasets", "torch", "av")


def run(
    rounds: int, seconds: float, workers: int | None, only: Sequence[str], events: Sequence[str]
) -> Measured:
    """Measure the rates of all installed loaders, and what they deliver.

    `only` names loaders and `events` cases; empty means all. Each run takes `seconds`.
    """
    begin = time.perf_counter()
    chosen = select_named(LOADERS.values(), only)
    workers = workers or share_of_cores(1)
    cases = [replace(case, workers=workers) for case in select_named(CASES, events)]
    present = [entry for entry in chosen if not entry.package or find_spec(entry.package)]
    checked = [
        BenchCase("check", BenchData("peers-check", spec, title), batch_size=8, workers=1)
        for title, spec in _CHECKED_SPECS.items()
    ]
    figures = {
        "packages": {name: results.package_version(name) for name in _PACKAGES},
        "absent": [entry.name for entry in chosen if entry not in present],
        "workers": workers,
        "batch_size": 32,
        "rounds": rounds,
        "results": [row for case in cases for row in _race(case, present, rounds, seconds)],
        "delivery": [
            {"contestant": entry.name, "stored": case.data.title}
            | _run(f"delivery of {entry.name}", count_delivered, entry, case)
            for case in checked
            for entry in _able(present, case).values()
        ],
        "seconds": time.perf_counter() - begin,
    }
    return figures, f"{tables_text(figures)}\n{figures['seconds']:.0f} s in all"


def _able(entries: Iterable[LoaderEntry], case: BenchCase) -> dict[str, LoaderEntry]:
    """Return the loaders that read this kind of cameras."""
    stored = "image" if case.data.spec.image_cameras else "video"
    return {entry.name: entry for entry in entries if stored in entry.stored}


def _race(
    case: BenchCase, present: Sequence[LoaderEntry], rounds: int, seconds: float
) -> Iterator[Figures]:
    """Yield the rates of each loader that can read the dataset."""
    entries = _able(present, case)
    title = f"{case.data.title}, {case.mode}"
    runs = {
        name: partial(_run, f"{title}, {name}", measure_speed, entry, case, seconds=seconds)
        for name, entry in entries.items()
    }
    for name, found in run_rounds(runs, rounds).items():
        row = {"data": case.data.title, "mode": case.mode, "contestant": name}
        rates = {"images_per_s_rounds": [figures.get("images_per_s") for figures in found]}
        failed = next((figures for figures in found if "failed" in figures), None)
        yield row | {"how": entries[name].how} | (failed or results.medians(found) | rates)


def _run(
    title: str, function: Callable[..., Any], entry: LoaderEntry, case: BenchCase, **more: Any
) -> Figures:
    """Return the figures of a run in a process of its own, or the reason it failed."""
    environment = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")}  # all files are local
    arguments = {"open_loader": entry.open, "case": case, **more}
    try:
        found: Figures = run_process(
            function, environment=environment, timeout_s=_TIMEOUT_S, **arguments
        )
    except MeasurementError as error:
        found = {"failed": error.reason}
    rate = found.get("images_per_s")
    results.show_progress(f"{title}: {found if rate is None else f'{rate:,.0f} images/s'}")
    return found


def measure_speed(open_loader: OpenLoader, case: BenchCase, seconds: float) -> Figures:
    """Load batches in this process until the time is up or the epoch ends; return the rates."""
    _, figures = measure_loading(case, open_loader, seconds=seconds)
    shown = ("samples_per_s", "images_per_s", "first_batch_s", "samples")
    return {field: figures[field] for field in shown}


_WINDOWS = {"single": "", "sarm": ", windows of 8 frames"}
_YES_NO = {True: "yes", False: "no", None: ""}  # None: the loader failed
_SPEED: dict[str, Column] = {
    "data": "data",
    "mode": "mode",
    "loader": "contestant",
    "used with": "how",
    "samples/s": lambda row: "failed" if "failed" in row else row["samples_per_s"],
    "images/s": lambda row: row.get("images_per_s", ""),
    "robostream is faster": "faster",
    "first batch, s": lambda row: row.get("first_batch_s", ""),
}
_DELIVERY: dict[str, Column] = {
    "loader": "contestant",
    "cameras": "stored",
    "frames missing": lambda row: (
        "failed" if "failed" in row else f"{row['missing']} of {row['frames']}"
    ),
    "frames repeated": lambda row: row.get("repeated", ""),
    "wrong images": lambda row: (
        "" if "failed" in row else f"{row['wrong_pictures']} of {row['pictures']}"
    ),
    "same order with another worker": lambda row: _YES_NO[row.get("same_order_with_more_workers")],
    "episodes per batch of 8": lambda row: row.get("episodes_per_batch", ""),
}


def tables_text(figures: Figures) -> str:
    """Return the tables for a terminal. Pure."""
    speed, delivery = _tables(figures)
    return "\n\n".join([speed.text(), delivery.text(), "\n".join(_remarks(figures))])


def _tables(figures: Figures) -> tuple[Table, Table]:
    """Return the tables of rates, with how much faster robostream is, and of deliveries."""
    rows = figures["results"]
    ours = {(r["data"], r["mode"]): r for r in rows if r["contestant"] == "robostream"}
    speed = []
    for row in rows:
        known = ours.get((row["data"], row["mode"]), {})
        times = "" if row is known else _times_faster(known, row)
        speed.append(row | {"faster": times and f"{times} times"})
    return Table.of(speed, _SPEED), Table.of(figures["delivery"], _DELIVERY)


def _times_faster(ours: Figures, theirs: Figures) -> str:
    """Return how many times faster the first is: the median of the rounds; "" if one failed."""
    if any("images_per_s_rounds" not in row for row in (ours, theirs)):
        return ""
    rounds = results.ratios(ours["images_per_s_rounds"], theirs["images_per_s_rounds"])
    return f"{median(rounds):.1f}"


def _remarks(figures: Figures) -> list[str]:
    """Return why some loaders have no figures, each reason once."""
    failed = [
        f"{row['contestant']} failed ({row.get('data') or row['stored']}): {row['failed']}"
        for row in (*figures["results"], *figures["delivery"])
        if "failed" in row
    ]
    absent = [f"{name} is left out: its package is not installed" for name in figures["absent"]]
    return [*dict.fromkeys(failed), *absent]


def _docs_block(repo: Path) -> str:
    """Return the tables of docs/benchmarks.md."""
    figures = PUBLICATION.read(repo)
    packages = figures["packages"].items()
    versions = ", ".join(f"{name} {number}" for name, number in packages if number)
    speed, delivery = _tables(figures)
    parts = [
        f"On {results.describe_cores(figures)}; "
        f"{figures['workers']} workers each, batches of {figures['batch_size']}, uint8; "
        f"medians of {figures['rounds']} interleaved rounds. {versions}.",
        speed.markdown(),
        "What each delivers in one epoch of a small dataset; every image is compared with the "
        "one decoded from the file:",
        delivery.markdown(),
        "\n".join(f"- {remark}" for remark in _remarks(figures)),
    ]
    return "\n\n".join(parts).rstrip()


def beside_lerobot(figures: Figures) -> dict[str, dict[str, Figures]]:
    """Return the rows of each case by loader: robostream, and LeRobot's two. Pure.

    LeRobot's map-style loader is shown with the faster of its video backends.
    """
    found: dict[str, dict[str, Figures]] = {}
    for row in figures["results"]:
        case = found.setdefault(row["data"] + _WINDOWS[row["mode"]], {})
        name = row["contestant"]
        if name in ("robostream", "LeRobot, streaming"):
            case[name.replace(",", "")] = row
        elif name.startswith("LeRobot, map-style"):
            known = case.get("LeRobot map-style", {})
            if row.get("samples_per_s", 0) >= known.get("samples_per_s", 0):
                case["LeRobot map-style"] = row
    return found


def _ratios(figures: Figures) -> list[str]:
    """Return how many times faster than LeRobot's map-style loader: single frames, windows. Pure.

    A ratio is "" if a loader failed or was left out.
    """
    cases = beside_lerobot(figures)
    first = next(iter(cases), "")
    pairs = (cases.get(name, {}) for name in (first, first + _WINDOWS["sarm"]))
    return [
        _times_faster(pair.get("robostream", {}), pair.get("LeRobot map-style", {}))
        for pair in pairs
    ]


def _sentence(repo: Path) -> str | None:
    """Return the README's sentence about the chart; None without figures of LeRobot."""
    figures = PUBLICATION.read(repo)
    single, windows = _ratios(figures)
    if not (single and windows):
        return None
    return (
        f"On {figures['machine']['cpus']} CPU cores and with nothing set, robostream delivers "
        f"**{single} times** as many samples per second as LeRobot "
        f"{figures['packages']['lerobot']}'s map-style loader, and **{windows} times** "
        "with windows of 8 frames."
    )


def draw_chart(figures: Figures) -> bytes:
    """Return the README's chart: samples/s of robostream and of LeRobot's loaders, by case."""
    cases = beside_lerobot(figures)

    def draw(figure: Any) -> None:
        about = f"{figures['workers']} workers, {figures['machine']['cpus']} CPU cores"
        figure.suptitle(f"Samples per second; {about}", x=0, ha="left", fontsize=13)
        every = figure.subplots(len(cases), 1, sharex=True, squeeze=False)[:, 0]
        for number, (axes, (title, rows)) in enumerate(zip(every, cases.items(), strict=True)):
            parts = title.split(", ")  # the fourth part and what follows on a line of their own
            axes.set_title("\n".join(filter(None, (", ".join(parts[:3]), ", ".join(parts[3:])))))
            rates = [row.get("samples_per_s", 0) for row in rows.values()]
            colours = [charts.OURS if name == "robostream" else charts.THEIRS for name in rows]
            axes.set_yticks(range(len(rows)), rows)
            bars = axes.barh(range(len(rows)), rates, 0.75, color=colours)
            labels = axes.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=6)
            for at, (bar, label, row) in enumerate(zip(bars, labels, rows.values(), strict=True)):
                if "failed" in row:
                    reason = row["failed"].split(":")[0]
                    label.set(text=f"failed ({reason})", color=charts.FAILED)
                else:
                    bar.set_gid(f"bar-{number}-{at}")
            axes.invert_yaxis()
            axes.tick_params(length=0, labelbottom=False)
            axes.spines[:].set_visible(False)
            axes.margins(x=0.25)

    height = sum(30 + 23 * len(rows) + 17 * (title.count(",") > 2) for title, rows in cases.items())
    return charts.draw_themed(draw, width=460, height=height + 40, name="peers")


def _chart(repo: Path) -> bytes:
    """Return the chart of a checkout; its old one without figures of LeRobot."""
    figures = PUBLICATION.read(repo)
    return draw_chart(figures) if all(_ratios(figures)) else (repo / _CHART).read_bytes()


_README, _CHART = Path("README.md"), Path("docs/drawings/peers.svg")
PUBLICATION: Publication = Publication(
    "peers.json",
    {DOCS: {"peers": _docs_block}, _README: {"peers": _sentence}},
    {_CHART: _chart},
)
