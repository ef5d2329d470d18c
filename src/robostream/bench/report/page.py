# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file with everything in it, nothing to fetch. Pure but for the style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from robostream.bench.report.bars import (
    Bar,
    Range,
    Stack,
    bar_chart,
    range_chart,
    stack_chart,
)
from robostream.bench.report.curves import Curve, curve_chart, steps
from robostream.bench.report.rows import Row, workers_text
from robostream.bench.report.summary import summary_rows
from robostream.bench.table import format_cell

_WORK = ("decode", "convert", "fetch", "copy", "other")
_MODES = {"single": "one frame of every camera", "sarm": "8 steps, 1 s apart, of every camera"}


def page_html(rows: Sequence[Row], failures: Mapping[str, str], *, title: str) -> str:
    """Return the page of all rows."""
    style = resources.files("robostream.bench.report").joinpath("page.css").read_text()
    parts = [
        f"<h1>{escape(title)}</h1>{_about(rows)}",
        _failed(failures),
        _tiles(rows),
        _throughput(rows),
        _start(rows),
        _waits(rows),
        _time(rows),
        _memory(rows),
        _mixing(rows),
        _table(rows),
        _definitions(rows),
    ]
    content = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>\n{style}</style></head>\n"
        f"<body><main>\n{content}\n</main></body></html>\n"
    )


def _about(rows: Sequence[Row]) -> str:
    first = rows[0].runs[0]
    machine, versions = first["machine"], first["machine"]["versions"]
    runs = sum(len(row.runs) for row in rows)
    return (
        f'<p class="lead">{runs} runs of {len(rows)} settings on {machine["cpus"]} cores of '
        f"{escape(machine['cpu'])}, {machine['memory_bytes'] / 2**30:.0f} GiB of memory. "
        f"robostream {escape(versions['robostream'])} "
        f"({escape(machine['git_commit'] or 'no commit known')}), torch "
        f"{escape(versions['torch'])}, PyAV {escape(versions['av'])}, Python "
        f"{escape(machine['python'])}. Every figure is the median of its runs.</p>"
    )


def _failed(failures: Mapping[str, str]) -> str:
    if not failures:
        return ""
    listed = "".join(
        f"<li><b>{escape(name)}</b>: {escape(reason)}</li>" for name, reason in failures.items()
    )
    return f'<section class="failed"><h2>{len(failures)} failed</h2><ul>{listed}</ul></section>'


def _tiles(rows: Sequence[Row]) -> str:
    tiles = []
    for mode in _MODES:
        of_mode = [row for row in rows if row["mode"] == mode]
        if of_mode:
            best = max(of_mode, key=lambda row: float(row["frames_per_s_node"]))
            tiles.append(_tile(mode, best["frames_per_s_node"], "samples/s", best))
            tiles.append(_tile(mode, best["images_per_s"], "images/s", best))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(mode: str, value: float, unit: str, best: Row) -> str:
    more = f"{best['source']}, {workers_text(best)}"
    if best.over_floor is not None and unit == "images/s":
        more += f", {best.over_floor:.2f} of decoding alone"
    return (
        f'<div class="tile {mode}"><span class="what">{mode}, best</span><b>{value:,.0f}</b>{unit}'
        f'<div class="more">{escape(more)}</div></div>'
    )


def _section(title: str, lead: str, content: str, *legend: tuple[str, str]) -> str:
    marks = "".join(f'<span><i class="{kind}"></i>{escape(text)}</span>' for kind, text in legend)
    shown = f'<div class="legend">{marks}</div>' if legend else ""
    return (
        f'<section><h2>{escape(title)}</h2><p class="lead">{escape(lead)}</p>{shown}{content}'
        "</section>"
    )


def _by_mode(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    groups = [(mode, [row for row in rows if row["mode"] == mode]) for mode in _MODES]
    return [(mode, found) for mode, found in groups if found]


def _throughput(rows: Sequence[Row]) -> str:
    charts = "".join(
        f"<h3>{mode}: {_MODES[mode]}</h3>{bar_chart([_throughput_bar(row) for row in found])}"
        for mode, found in _by_mode(rows)
    )
    return _section(
        "Throughput",
        "Images per second after the warm-up, by source, mode and workers. The line is the floor: "
        "decoding the same files alone, in as many processes.",
        charts,
        ("single-box", "single"),
        ("sarm-box", "sarm"),
        ("mark mark-box", "decoding alone"),
    )


def _throughput_bar(row: Row) -> Bar:
    over = "" if row.over_floor is None else f" · {row.over_floor:.2f} of the floor"
    return Bar(
        row.label_in_mode,
        row["images_per_s"],
        f"{row['images_per_s']:,.0f} images/s · {row['samples_per_s']:,.0f} samples/s{over}",
        row.numbers.get("floor_images_per_s"),
        row.spread("images_per_s"),
        row["mode"],
    )


def _start(rows: Sequence[Row]) -> str:
    def curve(row: Row) -> Curve:
        run = row.typical()
        return Curve(
            row.label_in_mode,
            f"first batch {row['first_batch_latency_s']:.1f} s · lowest "
            f"{row['start_lowest_samples_per_s']:,.0f} · steady {row['samples_per_s']:,.0f}",
            steps(run["samples_per_s_by_stretch"], run["stretch_s"]),
            [],
            run["samples_per_s"],
            row["mode"],
        )

    charts = "".join(
        f"<h3>{mode}</h3>{curve_chart([curve(row) for row in found], unit='samples/s')}"
        for mode, found in _by_mode(rows)
    )
    return _section(
        "Start-up",
        "Samples per second in each 2 s since the first batch was asked for, nothing cut off; "
        "the lowest is that of the first ten. Dashed: the rate after the warm-up.",
        charts,
    )


def _waits(rows: Sequence[Row]) -> str:
    def of_row(row: Row) -> Range:
        found = (row["p50_batch_wait_ms"], row["p95_batch_wait_ms"], row["p99_batch_wait_ms"])
        text = " · ".join(
            f"{name} {value:,.1f}" for name, value in zip(("p50", "p95", "p99"), found, strict=True)
        )
        return Range(row.label, f"{text} ms", found, row["mode"])

    return _section(
        "Waiting for a batch",
        "From asking for a batch to its arrival: median, 95th and 99th percentile. The consumer "
        "does nothing else, so it waits most of the time.",
        range_chart([of_row(row) for row in rows]),
    )


def _time(rows: Sequence[Row]) -> str:
    def stack(row: Row) -> Stack:
        shares = {kind: row[f"{kind}_pct_worker_time"] for kind in _WORK}
        text = f"{row['amplification']:.2f} images decoded per image delivered"
        return Stack(row.label, text, shares)

    return _section(
        "Where the workers' time goes",
        "Shares of the time of all workers after the warm-up. Other: rows, and waiting for the "
        "consumer or for each other.",
        stack_chart([stack(row) for row in rows]),
        *((kind, kind) for kind in _WORK),
    )


def _memory(rows: Sequence[Row]) -> str:
    def curve(row: Row) -> Curve:
        run = row.typical()
        text = f"at most {row['peak_pss_gb']:.2f} GB, shared pages counted once"
        seen = run["pss_gb_over_time"], run["rss_gb_over_time"]
        return Curve(row.label, text, *seen, None, row["mode"])

    return _section(
        "Memory",
        "Of all processes. Filled: shared pages counted once (PSS). Dotted: counted by each "
        "process that has them (RSS).",
        curve_chart([curve(row) for row in rows], unit="GB"),
    )


def _mixing(rows: Sequence[Row]) -> str:
    bars = [
        Bar(
            row.label,
            row["shuffle_randomness_frac"],
            f"{row['episodes_per_batch_mean']:.1f} episodes in a batch of {row['batch_size']}, "
            f"pool {row['episode_pool_size']} · {row['shuffle_randomness_frac']:.2f} of uniform",
            1.0,
            row.spread("shuffle_randomness_frac"),
            row["mode"],
        )
        for row in rows
    ]
    return _section(
        "Shuffle quality",
        "Distinct episodes in a batch, as a share of what a uniform shuffle of the whole dataset "
        "has. The line is uniform.",
        bar_chart(bars),
    )


def _table(rows: Sequence[Row]) -> str:
    found = summary_rows(rows)
    names = {"source", "mode", "decode"}

    def cell(tag: str, name: str, value: Any) -> str:
        text = "–" if value is None else format_cell(value)  # noqa: RUF001  # a dash of its width
        kind = ' class="name"' if name in names else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    head = "".join(cell("th", name, name) for name in found[0])
    body = "".join(
        f"<tr>{''.join(cell('td', name, value) for name, value in row.items())}</tr>"
        for row in found
    )
    table = f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
    return _section("All figures", "The same as summary.csv.", table)


def _definitions(rows: Sequence[Row]) -> str:
    first = rows[0].runs[0]
    entries = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in first.get("definitions", {}).items()
    )
    shuffle = ", ".join(f"{name} {value}" for name, value in first["shuffle"].items())
    return _section(
        "What the figures mean", f"Shuffle of the first row: {shuffle}.", f"<dl>{entries}</dl>"
    )
