# SPDX-License-Identifier: Apache-2.0
"""`bench report`: results of `bench stream` as a table, summary.csv and report.html.

Runs with equal settings become one row, with medians over rounds and nodes. The page is one HTML
file that holds its charts and fetches nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from robostream.bench import charts, results
from robostream.bench.charts import Rows
from robostream.bench.results import Figures, Table
from robostream.bench.stream import OUT_DIR
from robostream.errors import MissingExtraError, RobostreamError
from robostream.storage import write_bytes_atomic
from robostream.tools import page_html, read_style, section_html, table_html, tile_html

# A field of every result of `bench stream`; other JSON files may lie beside them.
_MARK = "frames_per_s_node"
_SETTINGS = ["source", "mode", "video_decode_device", "num_workers", "batch_size"]
_SETTINGS += ["prefetch_factor", "episode_pool_size", "return_uint8", "repo_id"]
# The columns of the table and of summary.csv, LeRobot's first.
COLUMNS = {
    "source": "source",
    "mode": "mode",
    "decode": "video_decode_device",
    "workers": "num_workers",
    "bs": "batch_size",
    "frames/s/node": "frames_per_s_node",
    "first_batch_s": "first_batch_latency_s",
    "p50_ms": "p50_sample_latency_ms",
    "p95_ms": "p95_sample_latency_ms",
    "p99_ms": "p99_sample_latency_ms",
    "cache_hit_rate": "hit_rate",
    "images/s": "images_per_s",
    "over_floor": "over_floor",
    "start_lowest": "start_lowest_samples_per_s",
    "decoded/delivered": "amplification",
    "peak_gb": "peak_pss_gb",
    "runs": "num_runs",
    "nodes": "num_nodes",
}
_MODES = {"single": "one frame of every camera", "sarm": "8 steps, 1 s apart, of every camera"}
# Charts with a line for each row are drawn twice; the style sheet shows the one that fits.
_WIDTHS = {"wide": 1058, "narrow": 328, "panel": 328}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    folder_help = "the folder of the results, which may lie in subfolders (%(default)s)"
    parser.add_argument("folder", nargs="?", type=Path, default=OUT_DIR, help=folder_help)
    parser.add_argument("--title", default="Streaming benchmark", help="the title of the page")


def run(args: argparse.Namespace) -> int:
    """Write summary.csv and report.html, print the table; return 1 if a run failed."""
    runs, failures = collect(args.folder)
    for name, reason in failures.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    print(write_report(args.folder, runs, failures, title=args.title))
    return 1 if failures else 0


def write_report(folder: Path, runs: Rows, failures: Mapping[str, str], *, title: str) -> str:
    """Write summary.csv and report.html; return the table.

    Without matplotlib there is no page, and a message says so.
    """
    if not runs:
        raise RobostreamError(f"{folder}: want results of `bench stream`, found none")
    rows = group_rows(runs)
    header, cells = Table.of(rows, COLUMNS)
    said = [Table(header, [["-" if one is None else one for one in row] for row in cells]).text()]
    limits = ((row["label"], row["typical"].get("limited_by")) for row in rows)
    # Results of earlier versions have no such line.
    said += [f"{label}: limited by {limit}" for label, limit in limits if limit]
    lines = [dict(zip(header, row, strict=True)) for row in cells]
    files = {"summary.csv": results.csv_text(lines)}
    try:
        files["report.html"] = report_html(rows, failures, title=title)
    except MissingExtraError as error:
        print(f"report.html is not written: {error}", file=sys.stderr)
    for name, text in files.items():
        write_bytes_atomic(folder / name, text.encode())
        said.append(f"written to {folder / name}")
    return "\n".join(said)


def collect(folder: Path) -> tuple[list[Figures], dict[str, str]]:
    """Return the figures of all runs below a folder, and the reasons of failures by file.

    A file NAME.failed means that a run failed, and its first line says why; a job that runs the
    benchmark may write one. An unreadable JSON file is a failure, too.
    """
    if not folder.is_dir():
        raise RobostreamError(
            f"{folder}: want a folder of results, found none. Run `robostream bench stream` first, "
            "or give its --out_dir."
        )
    runs, failures = [], {}
    for path in sorted(folder.rglob("*.json")):
        try:
            figures = results.read_figures(path)
        except RobostreamError as error:
            failures[str(path.relative_to(folder))] = str(error)
            continue
        if _MARK in figures:
            runs.append(figures)
    for path in sorted(folder.rglob("*.failed")):
        reason = path.read_text(errors="replace").strip().splitlines()
        failures[str(path.relative_to(folder))] = reason[0] if reason else "no reason given"
    return runs, failures


def group_rows(runs: Rows) -> list[Figures]:
    """Return a row for each setting, by mode, source and workers. Pure.

    A row has the medians of its runs, and besides:
        runs: All of them.
        typical: The run whose throughput is closest to the median.
        over_floor: Images/s over those of the floor; None without a floor.
        hit_rate: The hit rate of open video files; None if no file was opened.
        num_nodes: The number of machines it was measured on.
    """
    groups: dict[tuple[Any, ...], list[Figures]] = defaultdict(list)
    for run in runs:
        groups[tuple(run.get(name) for name in _SETTINGS)].append(run)
    rows = [_summarize(group) for group in groups.values()]
    return sorted(rows, key=lambda r: (r["mode"] != "single", r["source"], int(r["num_workers"])))


def _summarize(runs: Rows) -> Figures:
    middle = results.medians(runs)
    floors = [run for run in runs if run.get("floor_images_per_s")]
    over = [run["images_per_s"] / run["floor_images_per_s"] for run in floors]
    hits = [run["video_decoder_cache"]["hit_rate"] for run in runs]
    hits = [rate for rate in hits if rate is not None]
    workers = f"{runs[0]['num_workers']} worker{'' if runs[0]['num_workers'] == 1 else 's'}"
    return {
        **runs[0],
        **middle,
        **{name: runs[0].get(name) for name in _SETTINGS},
        "runs": runs,
        "typical": min(runs, key=lambda run: abs(run["images_per_s"] - middle["images_per_s"])),
        "workers": workers,
        "label": f"{runs[0]['source']} · {runs[0]['mode']} · {workers}",
        "over_floor": median(over) if over else None,
        "hit_rate": median(hits) if hits else None,
        "num_runs": len(runs),
        "num_nodes": len({run["node"]["hostname"] for run in runs if "node" in run} or {""}),
    }


def report_html(rows: Rows, failures: Mapping[str, str], *, title: str) -> str:
    """Return the page of all rows. Needs matplotlib."""
    parts = [f"<h1>{escape(title)}</h1><p>{escape(_about(rows))}</p>"]
    if failures:
        listed = "".join(f"<li><b>{escape(n)}</b>: {escape(r)}</li>" for n, r in failures.items())
        failed = f"<h2>{len(failures)} failed</h2><ul>{listed}</ul>"
        parts.append(f'<section class="failed">{failed}</section>')
    parts.append(f'<div class="tiles">{_by_mode(_tiles, rows)}</div>')
    parts += [section_html(name, lead, make(rows)) for name, (lead, make) in _SECTIONS.items()]
    shuffle = ", ".join(f"{name} {value}" for name, value in rows[0]["shuffle"].items())
    entries = rows[0].get("definitions", {}).items()
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entries)
    lead = f"Shuffle of the first row: {shuffle}."
    parts.append(section_html("What the figures mean", lead, f"<dl>{listed}</dl>"))
    return page_html(title, "\n".join(parts), read_style("robostream.bench", "report.css"))


def _about(rows: Rows) -> str:
    machine = rows[0]["machine"]
    versions = machine["versions"]
    return (
        f"{sum(row['num_runs'] for row in rows)} runs of {len(rows)} settings on "
        f"{results.describe_cores(rows[0])}, {machine['memory_bytes'] / 2**30:.0f} GiB "
        f"of memory. robostream {versions['robostream']} "
        f"({machine['git_commit'] or 'no commit known'}), torch {versions['torch']}, "
        f"PyAV {versions['av']}, Python {machine['python']}. "
        "Every figure is the median of its runs."
    )


def _by_mode(make: Callable[[str, Rows], str], rows: Rows) -> str:
    """Return what `make` returns of each mode and its rows."""
    groups = {mode: [row for row in rows if row["mode"] == mode] for mode in _MODES}
    return "".join(make(mode, found) for mode, found in groups.items() if found)


def _tiles(mode: str, rows: Rows) -> str:
    """Return the best rates of a mode."""
    best = max(rows, key=lambda row: float(row["frames_per_s_node"]))
    where, over = f"{best['source']}, {best['workers']}", best["over_floor"]
    beside = where if over is None else f"{where}, {over:.2f} times raw decode speed"
    tiles = (("samples/s", "frames_per_s_node", where), ("images/s", "images_per_s", beside))
    return "".join(
        tile_html(f"{mode}, best", f"{best[name]:,.0f}", unit, more, kind=mode)
        for unit, name, more in tiles
    )


def _svg(name: str, draw: Callable[[Any], None], kind: str, height: int, number: int = 0) -> str:
    """Return a chart, one pair of axes that `draw` fills, as an element of the page."""
    salt, width = f"{name} {kind} {number}", _WIDTHS[kind]
    svg = charts.inline_svg(lambda f: draw(f.subplots()), width=width, height=height, salt=salt)
    return f'<div class="{kind}" role="img" aria-label="{escape(name)}">{svg}</div>'


def _chart(name: str, draw: Callable[[Rows, Any], None], rows: Rows) -> str:
    """Return a chart with a line for each row, drawn by `draw(rows, axes)`, for both widths."""
    height = len(rows) * charts.ROW_PX + 50
    return "".join(_svg(name, partial(draw, rows), kind, height) for kind in ("wide", "narrow"))


def _panels(name: str, draw: Callable[[Figures, Any], None], rows: Rows) -> str:
    """Return a small chart for each row, drawn by `draw(row, axes)`."""
    panels = "".join(
        _svg(f"{name}, {row['label']}", partial(draw, row), "panel", charts.PANEL_PX, number)
        for number, row in enumerate(rows)
    )
    return f'<div class="panels">{panels}</div>'


def _throughput(mode: str, rows: Rows) -> str:
    chart = _chart(f"throughput, {mode}", charts.draw_throughput, rows)
    return f"<h3>{mode}: {_MODES[mode]}</h3>{chart}"


def _start(mode: str, rows: Rows) -> str:
    return f"<h3>{mode}</h3>{_panels(f'start-up, {mode}', charts.draw_start, rows)}"


def _memory(rows: Rows) -> str:
    most_gb = 1.05 * max(size for row in rows for _, size in row["typical"]["rss_gb_over_time"])
    return _panels("memory", partial(charts.draw_memory, most_gb), rows)


def _table(rows: Rows) -> str:
    header, cells = Table.of(rows, COLUMNS)
    texts = [
        ["–" if value is None else escape(results.format_cell(value)) for value in row]  # noqa: RUF001
        for row in cells
    ]
    return table_html(header, texts, names=("source", "mode", "decode"))


# By title, the paragraph that begins a section, and what it shows of the rows.
_SECTIONS: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "Throughput": (
        "Images per second after the warm-up, and times (x) raw decode speed. "
        "The line is raw decode speed: PyAV alone decodes the same files, in as many processes.",
        partial(_by_mode, _throughput),
    ),
    "Start-up": (
        "Samples per second in each 2 s since the first batch was requested, nothing left out; "
        "the lowest is that of the first 20 s, and a shorter run says so. Dashed: the rate after "
        "the warm-up. Each chart has a scale of its own.",
        partial(_by_mode, _start),
    ),
    "Waiting for a batch": (
        "From the request of a batch to its arrival: median, 95th and 99th percentile (also "
        "as a number). The consumer does nothing else, so it waits most of the time.",
        partial(_chart, "waits", charts.draw_waits),
    ),
    "Where the workers' time goes": (
        "Shares of the time of all workers after the warm-up, in per cent, and images decoded per "
        "image delivered. Other: rows, and waiting for the consumer or for each other.",
        partial(_chart, "time of the workers", charts.draw_worker_time),
    ),
    "Memory": (
        "Of all processes, on one scale. Filled: shared pages counted once (PSS). Dotted: counted "
        "in each process (RSS).",
        _memory,
    ),
    "Shuffle quality": (
        "Distinct episodes in a batch, as a share of those of a uniform shuffle of the whole "
        "dataset. The line is uniform.",
        partial(_chart, "shuffle quality", charts.draw_mixing),
    ),
    "All figures": (
        "The same as summary.csv; scroll the table sideways. p50_ms, p95_ms and p99_ms are "
        "percentiles of the time between two batches, divided by the samples of a batch. "
        "over_floor is times raw decode speed.",
        _table,
    ),
}
