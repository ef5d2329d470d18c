# SPDX-License-Identifier: Apache-2.0
"""HTML pages that hold all they need and fetch nothing: the frame, sections, tables, charts.

Charts are inline SVG, drawn in 1000 units of width and stretched without keeping its proportions;
lines keep their thickness, and all texts are HTML beside or over it. So one drawing serves every
width, and the left and right edges of a chart are those of the images above it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

NUM_COLOURS = 8
_WIDTH = 1000
# Beyond so many points a line shows the smallest and the largest value of each stretch.
_MOST_POINTS = 800


def read_style(package: str, name: str) -> str:
    """Return a style sheet that lies in a package."""
    return resources.files(package).joinpath(name).read_text()


def page_html(title: str, content: str, style: str) -> str:
    """Return a whole page; `style` follows the style sheet that all pages share."""
    shared = read_style("robostream.tools", "page.css")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>\n{shared}{style}</style></head>\n"
        f"<body><main>\n{content}\n</main></body></html>\n"
    )


def section_html(title: str, lead: str, content: str) -> str:
    """Return a section: its title, a paragraph, and content that is HTML already. Pure."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(lead)}</p>{content}</section>"


def tile_html(what: str, value: str, unit: str, more: str, *, kind: str = "") -> str:
    """Return a tile with one large figure. Pure."""
    return (
        f'<div class="tile {kind}"><span class="what">{escape(what)}</span><b>{escape(value)}</b>'
        f'{escape(unit)}<div class="more">{escape(more)}</div></div>'
    )


def table_html(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, names: Collection[str]
) -> str:
    """Return a table that scrolls sideways; cells are HTML, columns in `names` hold text. Pure."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="name"' if name in names else "" for name in header]
        found = (f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    body = "".join(line("td", row) for row in rows)
    head = line("th", [escape(name) for name in header])
    return f'<div class="wide-table"><table>{head}{body}</table></div>'


def curves_html(values: Numbers, names: Sequence[str], *, num_parts: int, axis: str = "") -> str:
    """Return lines over time with a legend below; an only line may have no name.

    `values` are (frames, lines), `num_parts` the equal parts of time into which the chart is ruled,
    `axis` is from `axis_html`.
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    pad = 0.06 * (high - low) or 0.5
    scale = 100 / (high - low + 2 * pad)
    rounds = (divmod(number, NUM_COLOURS) for number in range(len(names)))
    colours = [f"c{colour}{' dash' * (again % 2)}" for again, colour in rounds]
    lines = "".join(
        f'<polyline class="{colour}" points="{_points((high + pad - heights) * scale)}">'
        f"<title>{escape(name)}</title></polyline>"
        for colour, name, heights in zip(colours, names, values.T, strict=True)
    )
    zero = (high + pad) * scale
    line = f'<path class="zero" d="M0 {zero:.2f}H{_WIDTH}"/>' if 0 < zero < 100 else ""
    bands = "".join(f"<i class=t{part}></i>" for part in range(num_parts))
    pairs = zip(colours, names, strict=True)
    spans = (f'<span><i class="{colour}"></i>{escape(name)}</span>' for colour, name in pairs)
    legend = f'<div class="legend">{"".join(spans)}</div>' if any(names) else ""
    kind = "chart" if len(names) > 1 else "chart low"
    bounds = {"middle": high} if low == high else {"top": high, "bottom": low}
    labels = "".join(
        f'<span class="y {place}">{format_number(value)}</span>' for place, value in bounds.items()
    )
    drawn = f'<div class="bands">{bands}</div>{_svg(line + lines)}{labels}'
    return f'<div class="{kind}">{drawn}</div>{axis}{legend}'


def _svg(content: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} 100" preserveAspectRatio="none">{content}</svg>'


def _points(heights: Numbers) -> str:
    """Return a line of an SVG: one point in the middle of each frame's stretch of time."""
    frames = np.arange(len(heights))
    if len(heights) > _MOST_POINTS:
        edges = np.linspace(0, len(heights), _MOST_POINTS // 2 + 1).astype(int)
        pairs = [
            sorted((begin + int(np.argmin(part)), begin + int(np.argmax(part))))
            for begin, stop in itertools.pairwise(edges)
            for part in [np.nan_to_num(heights[begin:stop])]
        ]
        frames = np.unique(np.array(pairs).ravel())
    frames = frames[np.isfinite(heights[frames])]
    x = (frames + 0.5) * (_WIDTH / len(heights))
    if len(heights) == 1:  # a point would not be seen
        x, frames = np.array([0.0, _WIDTH])[: 2 * len(frames)], np.repeat(frames, 2)
    return " ".join(f"{a:.1f},{b:.2f}" for a, b in zip(x, heights[frames], strict=True))


def histogram_html(values: Numbers, *, marked: float) -> str:
    """Return the distribution of frames; the bar that holds `marked` has another colour."""
    bins = min(40, int(np.ptp(values)) + 1)
    counts, edges = np.histogram(values, bins, (values.min(), values.max() + 1))
    width = _WIDTH / bins
    chosen = int(np.searchsorted(edges, marked, side="right")) - 1
    heights = (96 * counts / counts.max()).tolist()
    bars = "".join(
        f'<rect class="{"bar chosen" if number == chosen else "bar"}" x="{number * width:.2f}" '
        f'y="{100 - height:.2f}" width="{0.88 * width:.2f}" height="{height:.2f}"><title>'
        f"{count} of {round(edges[number]):,} to {int(np.ceil(edges[number + 1])) - 1:,} frames"
        "</title></rect>"
        for number, (count, height) in enumerate(zip(counts.tolist(), heights, strict=True))
        if count
    )
    axis = axis_html((f"{values.min():,}", f"{values.max():,} frames"))
    most = f'<span class="y top">{counts.max():,}</span>'
    return f'<div class="chart low">{_svg(bars)}{most}</div>{axis}'


def axis_html(labels: Sequence[str]) -> str:
    """Return texts below a chart, evenly spread from its left edge to its right edge."""
    places = [100 * number / (len(labels) - 1) for number in range(len(labels))]
    spans = (
        f'<span style="left: {place:g}%; transform: translateX(-{place:g}%)">{escape(text)}</span>'
        for place, text in zip(places, labels, strict=True)
    )
    return f'<div class="axis">{"".join(spans)}</div>'


def range_html(entry: dict[str, float], low: float, high: float) -> str:
    """Return one dimension's range: a line from min to max, a box from q10 to q90, the mean."""
    x = {name: 2 + 96 * (value - low) / (high - low or 1.0) for name, value in entry.items()}
    box = ""
    if {"q10", "q90"} <= set(x):
        wide = max(x["q90"] - x["q10"], 0.5)
        box = f'<rect class="box" x="{x["q10"]:.1f}" y="3" width="{wide:.1f}" height="10"/>'
    return (
        '<svg class="range" viewBox="0 0 100 16" preserveAspectRatio="none">'
        f'<path class="line" d="M{x["min"]:.1f} 8H{x["max"]:.1f}"/>{box}'
        f'<path class="mean" d="M{x["mean"]:.1f} 1V15"/></svg>'
    )


def format_number(value: float) -> str:
    """Return a number with three digits that matter."""
    if not np.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
