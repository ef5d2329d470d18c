# SPDX-License-Identifier: Apache-2.0
"""`bench report`: results of `bench stream` as a table, summary.csv and report.html.

Runs with equal settings become one row, with medians over rounds and nodes. The page is one HTML
file that holds its charts and fetches nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from robostream.bench.charts import (
    COLOURS,
    PANEL_PX,
    ROW_PX,
    SHARE_COLOURS,
    draw_bars,
    draw_curve,
    draw_percentiles,
    draw_shares,
    inline_svg,
    steps,
)
from robostream.bench.measure import START_INTERVALS
from robostream.bench.results import Figures, csv_text
from robostream.bench.stream_settings import OUT_DIR
from robostream.bench.summary import COLUMNS, collect, group_rows
from robostream.bench.tables import format_cell, format_table, table_of
from robostream.errors import MissingExtraError, RobostreamError
from robostream.storage import write_bytes_atomic

Rows = Sequence[Figures]
_MODES = {"single": "one frame of every camera", "sarm": "8 steps, 1 s apart, of every camera"}
# Charts with a line for each row are drawn twice; the style sheet shows the one that fits.
_WIDTHS = {"wide": 1058, "narrow": 328, "panel": 328}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    folder_help = "the folder of the results, which may lie in subfolders (%(default)s)"
    parser.add_argument("folder", nargs="?", type=Path, default=OUT_DIR, help=folder_help)
    parser.add_argument("--title", default="Streaming benchmark", help="the title of the page")


def run(args: argparse.Namespace) -> int:
    """Print the table, write summary.csv and report.html; return 1 if a run failed."""
    return write_report(args.folder, title=args.title)


def write_report(folder: Path, *, title: str) -> int:
    """Print the table, write summary.csv and report.html; return 1 if a run failed, else 0.

    Without matplotlib there is no page, and a message says so.
    """
    runs, failures = collect(folder)
    for name, reason in failures.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if not runs:
        raise RobostreamError(f"{folder}: want results of `bench stream`, found none")
    rows = group_rows(runs)
    header, cells = table_of(rows, COLUMNS)
    print(format_table(header, [["-" if cell is None else cell for cell in row] for row in cells]))
    _write(folder / "summary.csv", csv_text([dict(zip(header, row, strict=True)) for row in cells]))
    try:
        _write(folder / "report.html", page_html(rows, failures, title=title))
    except MissingExtraError as error:
        print(f"report.html is not written: {error}", file=sys.stderr)
    return 1 if failures else 0


def _write(path: Path, text: str) -> None:
    write_bytes_atomic(path, text.encode())
    print(f"written to {path}")


def page_html(rows: Rows, failures: Mapping[str, str], *, title: str) -> str:
    """Return the page of all rows. Needs matplotlib."""
    style = resources.files("robostream.bench").joinpath("report.css").read_text()
    parts = [f"<h1>{escape(title)}</h1>{_about(rows)}", _failures(failures), _tiles(rows)]
    parts += [section(rows) for section in _SECTIONS]
    content = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>\n{style}</style></head>\n"
        f"<body><main>\n{content}\n</main></body></html>\n"
    )


def _about(rows: Rows) -> str:
    machine = rows[0]["machine"]
    versions = machine["versions"]
    text = (
        f"{sum(row['num_runs'] for row in rows)} runs of {len(rows)} settings on "
        f"{machine['cpus']} cores of {machine['cpu']}, {machine['memory_bytes'] / 2**30:.0f} GiB "
        f"of memory. robostream {versions['robostream']} "
        f"({machine['git_commit'] or 'no commit known'}), torch {versions['torch']}, "
        f"PyAV {versions['av']}, Python {machine['python']}. "
        "Every figure is the median of its runs."
    )
    return f"<p>{escape(text)}</p>"


def _failures(failures: Mapping[str, str]) -> str:
    if not failures:
        return ""
    listed = "".join(
        f"<li><b>{escape(name)}</b>: {escape(reason)}</li>" for name, reason in failures.items()
    )
    return f'<section class="failed"><h2>{len(failures)} failed</h2><ul>{listed}</ul></section>'


def _tiles(rows: Rows) -> str:
    """Return the best rates of each mode."""
    tiles = []
    for mode, found in _by_mode(rows):
        best = max(found, key=lambda row: float(row["frames_per_s_node"]))
        where = f"{best['source']}, {best['workers']}"
        over = best["over_floor"]
        beside_floor = where if over is None else f"{where}, {over:.2f} times raw decode speed"
        tiles += [
            f'<div class="tile {mode}"><span class="what">{mode}, best</span>'
            f'<b>{value:,.0f}</b>{unit}<div class="more">{escape(more)}</div></div>'
            for value, unit, more in (
                (best["frames_per_s_node"], "samples/s", where),
                (best["images_per_s"], "images/s", beside_floor),
            )
        ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _by_mode(rows: Rows) -> list[tuple[str, Rows]]:
    groups = [(mode, [row for row in rows if row["mode"] == mode]) for mode in _MODES]
    return [(mode, found) for mode, found in groups if found]


def _section(title: str, lead: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(lead)}</p>{content}</section>"


def _svg(name: str, draw: Callable[[Any], None], kind: str, height: int, salt: object) -> str:
    """Return a chart as an element of the page."""
    svg = inline_svg(draw, width=_WIDTHS[kind], height=height, salt=f"{name} {kind} {salt}")
    return f'<div class="{kind}" role="img" aria-label="{escape(name)}">{svg}</div>'


def _chart(rows: Rows, name: str, draw: Callable[[Any], None]) -> str:
    """Return a chart with a line for each row, drawn by `draw(axes)`, for both widths."""
    height = len(rows) * ROW_PX + 50
    return "".join(_svg(name, draw, kind, height, "") for kind in ("wide", "narrow"))


def _panels(rows: Rows, name: str, unit: str, draw: Callable[[Any, Figures], None]) -> str:
    """Return a small chart for each row, drawn by `draw(axes, row)`."""

    def draw_panel(row: Figures, axes: Any) -> None:
        draw(axes, row)
        axes.set(xlabel="s", ylabel=unit, xlim=(0, None))
        axes.set_ylim(bottom=0)

    charts = "".join(
        _svg(f"{name}, {row['label']}", partial(draw_panel, row), "panel", PANEL_PX, number)
        for number, row in enumerate(rows)
    )
    return f'<div class="panels">{charts}</div>'


def _label(row: Figures, text: str, *, mode: bool = True) -> str:
    """Return a label of two lines, short enough for a telephone."""
    source = row["source"] if len(row["source"]) <= 16 else f"{row['source'][:15]}…"
    return f"{source}{' ' + row['mode'] if mode else ''}\n{row['workers']}: {text}"


def _colours(rows: Rows) -> list[str]:
    return [COLOURS[row["mode"]] for row in rows]


def _spreads(rows: Rows, name: str) -> list[tuple[float, float]]:
    """Return the smallest and the largest value of each row's runs."""
    values = [[run[name] for run in row["runs"]] for row in rows]
    return [(min(found), max(found)) for found in values]


def _throughput(rows: Rows) -> str:
    def label(row: Figures) -> str:
        over = "" if row["over_floor"] is None else f", {row['over_floor']:.2f}"
        return _label(row, f"{row['images_per_s']:,.0f}{over}", mode=False)

    def draw(found: Rows, axes: Any) -> None:
        values = [row["images_per_s"] for row in found]
        marks = [row.get("floor_images_per_s") for row in found]
        spreads = _spreads(found, "images_per_s")
        labels = list(map(label, found))
        draw_bars(axes, labels, values, _colours(found), marks=marks, spreads=spreads)

    charts = "".join(
        f"<h3>{mode}: {_MODES[mode]}</h3>"
        + _chart(found, f"throughput, {mode}", partial(draw, found))
        for mode, found in _by_mode(rows)
    )
    return _section(
        "Throughput",
        "Images per second after the warm-up, and times raw decode speed, by source and workers. "
        "The line is raw decode speed: PyAV alone decodes the same files, in as many processes.",
        charts,
    )


def _start(rows: Rows) -> str:
    def draw(axes: Any, row: Figures) -> None:
        run = row["typical"]
        area = steps(run["samples_per_s_by_stretch"], run["stretch_s"])
        draw_curve(axes, area, COLOURS[row["mode"]], level=run["samples_per_s"])
        seconds = len(run["samples_per_s_by_stretch"]) * run["stretch_s"]
        lowest = f"lowest {row['start_lowest_samples_per_s']:,.0f}"
        if seconds < START_INTERVALS * run["stretch_s"]:
            lowest = f"too short: {seconds:.0f} s of {START_INTERVALS * run['stretch_s']:.0f}"
        axes.set_title(
            f"{row['source']} · {row['workers']}\n"
            f"first batch {row['first_batch_latency_s']:.1f} s, {lowest}"
        )

    charts = "".join(
        f"<h3>{mode}</h3>{_panels(found, f'start-up, {mode}', 'samples/s', draw)}"
        for mode, found in _by_mode(rows)
    )
    return _section(
        "Start-up",
        "Samples per second in each 2 s since the first batch was requested, nothing left out; "
        "the lowest is that of the first 20 s, and a shorter run says so. Dashed: the rate after "
        "the warm-up. Each chart has a scale of its own.",
        charts,
    )


def _waits(rows: Rows) -> str:
    def draw(axes: Any) -> None:
        found = [[row[f"p{p}_batch_wait_ms"] for p in (50, 95, 99)] for row in rows]
        labels = [_label(row, f"{row['p99_batch_wait_ms']:,.1f} ms") for row in rows]
        draw_percentiles(axes, labels, found, _colours(rows))
        axes.set_xlabel("ms")

    return _section(
        "Waiting for a batch",
        "From the request of a batch to its arrival: median, 95th and 99th percentile (also "
        "as a number). The consumer does nothing else, so it waits most of the time.",
        _chart(rows, "waits", draw),
    )


def _worker_time(rows: Rows) -> str:
    def draw(axes: Any) -> None:
        labels = [_label(row, f"{row['amplification']:.2f}") for row in rows]
        shares = [{kind: row[f"{kind}_pct_worker_time"] for kind in SHARE_COLOURS} for row in rows]
        draw_shares(axes, labels, shares)

    return _section(
        "Where the workers' time goes",
        "Shares of the time of all workers after the warm-up, in per cent, and images decoded per "
        "image delivered. Other: rows, and waiting for the consumer or for each other.",
        _chart(rows, "time of the workers", draw),
    )


def _memory(rows: Rows) -> str:
    most = 1.05 * max(size for row in rows for _, size in row["typical"]["rss_gb_over_time"])

    def draw(axes: Any, row: Figures) -> None:
        pss, rss = (row["typical"][f"{name}_gb_over_time"] for name in ("pss", "rss"))
        draw_curve(axes, pss, COLOURS[row["mode"]], line=rss)
        axes.set_ylim(top=most)
        axes.set_title(f"{row['label']}\npeak {row['peak_pss_gb']:.2f} GB")

    return _section(
        "Memory",
        "Of all processes, on one scale. Filled: shared pages counted once (PSS). Dotted: counted "
        "in each process (RSS).",
        _panels(rows, "memory", "GB", draw),
    )


def _mixing(rows: Rows) -> str:
    def draw(axes: Any) -> None:
        values = [row["shuffle_randomness_frac"] for row in rows]
        labels = [_label(row, f"{row['shuffle_randomness_frac']:.2f}") for row in rows]
        spreads = _spreads(rows, "shuffle_randomness_frac")
        draw_bars(axes, labels, values, _colours(rows), marks=[1.0] * len(rows), spreads=spreads)

    return _section(
        "Shuffle quality",
        "Distinct episodes in a batch, as a share of those of a uniform shuffle of the whole "
        "dataset. The line is uniform.",
        _chart(rows, "shuffle quality", draw),
    )


def _table(rows: Rows) -> str:
    header, cells = table_of(rows, COLUMNS)

    def line(tag: str, values: Sequence[object]) -> str:
        found = ""
        for name, value in zip(header, values, strict=True):
            text = "–" if value is None else format_cell(value)  # noqa: RUF001  # of its width
            kind = ' class="name"' if name in ("source", "mode", "decode") else ""
            found += f"<{tag}{kind}>{escape(text)}</{tag}>"
        return f"<tr>{found}</tr>"

    body = "".join(line("td", row) for row in cells)
    table = f'<div class="wide-table"><table>{line("th", header)}{body}</table></div>'
    lead = (
        "The same as summary.csv; scroll the table sideways. p50_ms, p95_ms and p99_ms are "
        "percentiles of the time between two batches, divided by the samples of a batch. "
        "over_floor is times raw decode speed."
    )
    return _section("All figures", lead, table)


def _definitions(rows: Rows) -> str:
    entries = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in rows[0].get("definitions", {}).items()
    )
    shuffle = ", ".join(f"{name} {value}" for name, value in rows[0]["shuffle"].items())
    return _section(
        "What the figures mean", f"Shuffle of the first row: {shuffle}.", f"<dl>{entries}</dl>"
    )


_SECTIONS = (_throughput, _start, _waits, _worker_time, _memory, _mixing, _table, _definitions)
