# SPDX-License-Identifier: Apache-2.0
"""Charts drawn with matplotlib. Sizes are in pixels; text stays text in the SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from robostream.errors import MissingExtraError

Points = Sequence[Sequence[float]]
INK, SOFT, RULE = "#16202c", "#5b6775", "#e3e7ec"
COLOURS = {"single": "#2f6df6", "sarm": "#e0742a"}
SHARE_COLOURS = {
    "decode": "#2f6df6",
    "convert": "#7fb2ff",
    "fetch": "#e0742a",
    "copy": "#3aa675",
    "other": "#d5dae1",
}
ROW_PX, PANEL_PX = 46, 230
_STYLE: dict[Any, Any] = {
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
    "svg.fonttype": "none",
}


def require_matplotlib() -> None:
    """Raise MissingExtraError unless matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing charts") from error


def draw_svg(draw: Any, *, width: float, height: float, salt: str) -> bytes:
    """Return the SVG of a new figure that `draw` fills; the salt makes its identifiers unique."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure  # pyplot would look for a display

    out = io.StringIO()
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": salt}):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        draw(figure)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r" +\n", "\n", out.getvalue())
    return re.sub(r'="([\d.]+)pt"', r'="\1px"', text, count=2).encode()


def inline_svg(draw: Any, *, width: float, height: float, salt: str) -> str:
    """Return one pair of axes that `draw` fills, as an element of an HTML page."""
    text = draw_svg(
        lambda figure: draw(figure.subplots()), width=width, height=height, salt=salt
    ).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r' xmlns(?::\w+)?="[^"]*"', "", text)


def draw_bars(
    axes: Any,
    labels: Sequence[str],
    values: Sequence[float],
    colours: Sequence[str],
    *,
    marks: Sequence[float | None],
    spreads: Sequence[tuple[float, float]] | None = None,
) -> None:
    """Draw a bar for each row, with a mark across it and the range of several runs."""
    _set_rows(axes, labels)
    for number, patch in enumerate(axes.barh(range(len(values)), values, 0.45, color=colours)):
        patch.set_gid(f"bar-{number}")
        mark = marks[number]
        if mark is not None:
            ends = (number - 0.35, number + 0.35)
            axes.plot((mark, mark), ends, color=INK, linewidth=3, gid=f"mark-{number}")
        if spreads is not None and spreads[number][0] < spreads[number][1]:
            axes.plot(spreads[number], (number, number), color=INK, alpha=0.5, marker="|")
    axes.set_xlim(left=0)


def draw_shares(axes: Any, labels: Sequence[str], rows: Sequence[Mapping[str, float]]) -> None:
    """Draw the shares of a whole for each row, in per cent."""
    _set_rows(axes, labels)
    left = [0.0] * len(rows)
    for kind, colour in SHARE_COLOURS.items():
        widths = [row[kind] for row in rows]
        bars = axes.barh(range(len(rows)), widths, 0.45, left=left, color=colour, label=kind)
        for number, patch in enumerate(bars):
            patch.set_gid(f"part-{kind}-{number}")
            left[number] += widths[number]
    axes.set_xlim(0, 100)
    axes.figure.legend(loc="outside upper left", ncols=3, handlelength=1)


def draw_percentiles(
    axes: Any, labels: Sequence[str], rows: Sequence[Sequence[float]], colours: Sequence[str]
) -> None:
    """Draw three percentiles for each row on a logarithmic scale."""
    from matplotlib.ticker import LogLocator

    _set_rows(axes, labels)
    axes.set_xscale("log")
    values = [max(value, 0.01) for row in rows for value in row]
    is_wide = max(values) > 10 * min(values)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if is_wide else (1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    for number, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        shown = [max(value, 0.01) for value in row]
        axes.plot((shown[0], shown[-1]), (number, number), color=RULE, linewidth=3)
        for place, (value, fill) in enumerate(zip(shown, (colour, colour, "white"), strict=True)):
            style = {"markeredgecolor": colour, "markeredgewidth": 2, "markersize": 9}
            alpha = 0.6 if place == 1 else 1.0
            gid = f"dot-{place}-{number}"
            axes.plot(value, number, "o", color=fill, alpha=alpha, gid=gid, **style)


def draw_curve(
    axes: Any, area: Points, colour: str, *, line: Points = (), level: float | None = None
) -> None:
    """Draw a filled curve, a second dotted one, and a dashed level."""
    if area:
        x, y = zip(*area, strict=True)
        axes.fill_between(x, y, color=colour, alpha=0.16, linewidth=0)
        axes.plot(x, y, color=colour, linewidth=2, gid="curve")
    if line:
        axes.plot(*zip(*line, strict=True), color=SOFT, linestyle=":", linewidth=1.5)
    if level is not None:
        axes.axhline(level, color=INK, linestyle="--", linewidth=1.5)
    axes.locator_params(nbins=4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.grid(axis="y")


def steps(values: Sequence[float], width: float) -> list[tuple[float, float]]:
    """Return values that each hold for an interval as a curve with steps. Pure."""
    return [
        point
        for place, value in enumerate(values)
        for point in ((place * width, value), ((place + 1) * width, value))
    ]


def _set_rows(axes: Any, labels: Sequence[str]) -> None:
    """Label the rows from the top down."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    is_narrow = axes.figure.get_figwidth() < 6
    axes.locator_params(axis="x", nbins=2 if is_narrow else 4)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="x")
