# SPDX-License-Identifier: Apache-2.0
"""`bench suite`, also `make bench`: everything small, in minutes, and the figures of the docs.

All cases run in turn, several times, so a disturbance of the machine affects all of them. The
tables and the chart of docs/benchmarks.md are made from the suite's JSON.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from robostream.bench import charts, results, run_benchmark
from robostream.bench.measure import SARM_S, BenchCase, BenchData, merge_row_groups, run_rounds
from robostream.bench.processes import MeasurementError, run_process
from robostream.bench.report import collect, write_report
from robostream.bench.results import DOCS, RESULTS, Column, Figures, Measured, Publication, Table
from robostream.bench.stream import WARMUP_BATCHES, measure_stream, parse_settings
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
        "suite", _AV1, "as the first, one row group per Parquet file", merge_row_groups
    ),
}
CASES = (
    BenchCase("defaults", DATASETS["av1"]),
    BenchCase("defaults", DATASETS["av1"], 16, SARM_S),
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
_FLOOR_S = 2.0
# A sample of mode sarm has many images, so fewer samples take equally long.
_SARM_BATCHES = 80
# Fields that identify the machine of a run; published files leave them out.
_PRIVATE = ("root", "data_files_root", "node", "definitions", "machine")
# `robostream bench loader --workers 16`, on another machine.
_LARGE = RESULTS / "loader-16-cores.json"
_CHART = Path("docs/bench.svg")
_STREAMED: dict[str, Column] = {
    "data": "data",
    "sample": lambda case: f"{case['mode']}, batch {case['batch_size']:.0f}",
    "set": "setting",
    "samples/s": "samples_per_s",
    "images/s": "images_per_s",
    "times raw decode speed": "over_floor",
    "first batch, s": "first_batch_latency_s",
    "lowest 2 s of the first ten, samples/s": "start_lowest_samples_per_s",
    "decoded per delivered": "amplification",
    "memory, GB": "peak_pss_gb",
}
# Rates are published beside those of other loaders (`bench peers`), one for each case.
_RATES = ("samples/s", "images/s", "lowest 2 s of the first ten, samples/s")
_PUBLISHED = {name: column for name, column in _STREAMED.items() if name not in _RATES}
_OTHER = ("command", "what", "figure")
# Measured once each, at their small sizes.
_OTHERS = ("meta", "plan", "shuffle", "node", "decode", "remote")


def run(rounds: int, out: Path) -> Measured:
    """Measure everything; keep each run in `out`."""
    for data in DATASETS.values():
        data.open()  # before the clock starts
    begin = time.perf_counter()
    streamed = run_cases(CASES, rounds=rounds, out=out / "suite")
    minute = _run_case(CASES[0], out / "first-minute", at_most_s=60.0, num_batches=10**9)
    others = {name: run_benchmark(name, quick=True) for name in _OTHERS}
    figures = {
        "rounds": rounds,
        "seconds": time.perf_counter() - begin,
        "cases": [case_figures(case, found) for case, found in zip(CASES, streamed, strict=True)],
        "first_minute": public_figures(minute),
        **{name: found for name, (found, _) in others.items()},
    }
    parts = [f"== {name}\n{text}" for name, (_, text) in others.items()]
    parts += [write_report(out / "suite", *collect(out / "suite"), title="make bench")]
    parts += [f"{suite_text(figures)}\n{figures['seconds']:.0f} s in all"]
    return figures, "\n\n".join(parts)


def run_cases(cases: Sequence[BenchCase], *, rounds: int, out: Path) -> list[list[Figures]]:
    """Return the figures of each case in each round; write each run to `out`, too."""
    shutil.rmtree(out, ignore_errors=True)
    runs = {}
    for number, case in enumerate(cases):
        # Of one epoch; later epochs may find frames cached.
        info = results.read_figures(case.data.open() / "meta" / "info.json")
        whole = int(info["total_frames"]) // case.batch_size - WARMUP_BATCHES
        most = whole if case.mode == "single" else min(whole, _SARM_BATCHES)
        runs[number] = partial(_run_case, case, out, num_batches=most)
    return list(run_rounds(runs, rounds).values())


def case_figures(case: BenchCase, runs: Sequence[Figures]) -> Figures:
    """Return the published figures of a case: medians, and the ratio to the floor by round."""
    over_floor = [run["images_per_s"] / run["floor_images_per_s"] for run in runs]
    return {
        "name": case.name,
        "data": case.data.title,
        "mode": case.mode,
        "setting": case.setting,
        **results.medians(runs),
        "over_floor": median(over_floor),
        "over_floor_rounds": over_floor,
    }


def public_figures(figures: Mapping[str, Any]) -> Figures:
    """Return figures without the fields that identify their machine. Pure."""
    return {name: value for name, value in figures.items() if name not in _PRIVATE}


def _run_case(case: BenchCase, out: Path, **limits: Any) -> Figures:
    """Run `bench stream` in a process of its own; only what the case sets differs from defaults."""
    settings = parse_settings(
        repo_id=f"bench/{case.name}",
        root=case.data.open(),
        source=case.name,
        mode=case.mode,
        batch_size=case.batch_size,
        num_workers="auto" if case.workers is None else case.workers,
        prefetch_factor="auto",
        floor_s=_FLOOR_S,
        **case.options,
        **limits,
    )
    try:
        name, figures = run_process(measure_stream, settings=settings)
    except MeasurementError as error:
        raise RobostreamError(f"{case.name} {case.mode} failed: {error.reason}") from error
    results.save_run(out, name, figures)
    results.show_progress(
        f"{case.name} {case.mode}: {figures['images_per_s']:,.0f} images/s, "
        f"floor {figures['floor_images_per_s']:,.0f}"
    )
    return dict(figures)


def _docs_block(repo: Path) -> str:
    """Return the tables of docs/benchmarks.md."""
    figures = PUBLICATION.read(repo)
    others = _other_rows(figures)
    if (repo / _LARGE).exists():
        large = results.read_figures(repo / _LARGE)
        workers = max(case["workers"] for case in large["cases"])
        cases = [case for case in large["cases"] if case["workers"] == workers]
        cores = f"on {large['machine']['cpus']} cores, times raw decode speed"
        ratios = "; ".join(f"{case['case']}: {case['over_floor']:.2f}" for case in cases)
        command = f"`bench loader --workers {workers}`"
        others.append([command, f"{cores} ([JSON](../{_LARGE}))", ratios])
    parts = [
        f"`make bench` measured this on {results.describe_cores(figures)} in "
        f"{figures['seconds'] / 60:.0f} minutes (medians of {figures['rounds']} interleaved "
        f"rounds; [JSON](../{RESULTS / PUBLICATION.results})), and measures it on yours.",
        f"![Throughput beside raw decode speed, and the first minute]({_CHART.name})",
        Table.of(figures["cases"], _PUBLISHED).markdown(),
        "single: one frame of each camera; sarm: 8, a second apart. Measured in the first epoch, "
        "when no frame is cached yet, after 5 batches of warm-up.",
        Table(_OTHER, others).markdown(),
    ]
    return "\n\n".join(parts)


def suite_text(figures: Figures) -> str:
    """Return the same tables for a terminal. Pure."""
    cases = Table.of(figures["cases"], _STREAMED).text()
    return f"{cases}\n\n{Table(_OTHER, _other_rows(figures)).text()}"


def _other_rows(figures: Figures) -> list[list[str]]:
    meta = max(figures["meta"]["rows"], key=lambda row: int(row["episodes"]))
    plan, remote = figures["plan"]["results"][-1], figures["remote"]
    node = _find(figures["node"], episodes=2_000, cameras=3, ranks=8, workers=16)
    mixed = _find(figures["shuffle"], method="robostream", pool_size=64)
    in_order = [row for row in figures["decode"]["results"] if row["read"] == "in order"]
    decoded = "; ".join(f"{row['videos']}: {row['over_floor']:.2f}" for row in in_order)
    loaded = f"{meta['load_s'] + meta['fingerprint_s']:.2f} s, {meta['peak_bytes'] / 1e6:.0f} MB"
    started = f"{plan['start_s']:.2f} s, {plan['peak_rss_mb']:.0f} MB"
    fetched = ", ".join(f"{epoch['fetched_over_needed']:.3f}" for epoch in remote["fast"])
    waited = f"{remote['paced'][0]['wait_share']:.1%}"
    requests = f"{remote['fast'][0]['requests_per_episode_and_camera']:.2f}"
    busy = "share of their time that workers of 8 ranks x 16 are busy (simulated)"
    read = "map-style reading in order, one thread, times raw decode speed"
    diverse = "distinct episodes per batch of 64 over a uniform shuffle's, pool 64"
    behind = "behind 20 ms and 200 Mbit/s: first batch; bytes fetched over needed, epochs 1 and 2"
    needed = f"with {remote['link_over_need']:.1f} times the link that is needed"
    return [
        ["`bench meta`", f"load the metadata of {meta['episodes']:,} episodes", loaded],
        ["`bench plan`", f"start an epoch of {plan['frames']:.1e} frames", started],
        ["", "a seek at 99 % of it over one at 1 %", f"{plan['seek_ratio']:.2f}"],
        ["`bench node`", busy, f"{node['share of time used']:.2f}"],
        ["`bench decode`", read, decoded],
        ["`bench shuffle`", diverse, f"{mixed['diversity']:.2f}"],
        ["`bench remote`", behind, f"{remote['fast'][0]['first_batch_s']:.1f} s; {fetched}"],
        ["", f"requests per episode and camera; waiting, {needed}", f"{requests}; {waited}"],
    ]


def _find(figures: Figures, **wanted: object) -> Figures:
    rows: list[Figures] = figures["results"]
    return next(row for row in rows if wanted.items() <= row.items())


def _chart(repo: Path) -> bytes:
    """Return a chart: throughput beside raw decode speed, and the first minute of a run."""
    figures = PUBLICATION.read(repo)
    cases, first = figures["cases"], figures["first_minute"]
    bars_px, curve_px = len(cases) * charts.ROW_PX + 60, 200

    def draw(figure: Any) -> None:
        above, below = figure.subplots(2, 1, height_ratios=[bars_px, curve_px])
        labels = [
            f"{case['name']}, {case['mode']}\n{case['over_floor']:.2f} times raw decode speed"
            for case in cases
        ]
        charts.draw_bars(above, cases, "over_floor", labels, [1.0] * len(cases))
        above.set_title("Times raw decode speed (line: decoding the same files and nothing else)")
        interval_s = first["stretch_s"]
        epochs = first["frames_measured"] / first["dataset"]["frames"]
        area = charts.steps(first["samples_per_s_by_stretch"], interval_s)
        charts.draw_curve(below, area, charts.COLOURS["single"])
        below.set_title(
            f"The first minute with nothing set: samples per second in each {interval_s:.0f} s, "
            f"over {epochs:.0f} epochs"
        )

    return charts.draw_svg(draw, width=860, height=bars_px + curve_px, salt="bench")


PUBLICATION = Publication("suite.json", {DOCS: {"bench": _docs_block}}, {_CHART: _chart})
