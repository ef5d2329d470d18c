# SPDX-License-Identifier: Apache-2.0
"""Charts drawn with matplotlib: those of a report, and what they share with others.

Sizes are in pixels; text stays text in the SVG.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from robostream.bench.measure import START_INTERVALS
from robostream.bench.results import Figures, require_matplotlib

Rows = Sequence[Figures]  # of a report
Points = Sequence[Sequence[float]]
INK, SOFT, RULE = "#16202c", "#5b6775", "#e3e7ec"
COLOURS = {"single": "#2f6df6", "sarm": "#e0742a"}
OURS, THEIRS, FAILED = "#2f6df6", "#8a94a3", "#c2410c"
# The colours of a drawing that suits light and dark pages, by their names in its style.
_THEME = {
    "ink": (INK, "#e6e9ee"),
    "soft": (SOFT, "#a3adba"),
    "ours": (OURS, "#6f9dff"),
    "theirs": (THEIRS, "#7d8896"),
    "failed": (FAILED, "#f09a5b"),
}
_SHARE_COLOURS = {
    "decode": "#2f6df6",
    "convert": "#7fb2ff",
    "fetch": "#e0742a",
    "copy": "#3aa675",
    "other": "#d5dae1",
}
ROW_PX, PANEL_PX = 46, 230
_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize"), 13),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), SOFT),
    **dict.fromkeys(("text.color", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": RULE,
    "text.parse_math": False,
    "svg.fonttype": "none",
}


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
    """Return the same as an element of an HTML page."""
    text = draw_svg(draw, width=width, height=height, salt=salt).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r' xmlns(?::\w+)?="[^"]*"', "", text)


def draw_themed(draw: Any, *, width: float, height: float, name: str) -> bytes:
    """Return an SVG with the colours of a light or of a dark page, for the site and GitHub."""
    text = inline_svg(draw, width=width, height=height, salt=name)
    text = re.sub(r"<style type.*?</style>", "", text)  # it would apply to the whole page
    text = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", text)
    for variable, (light, _) in _THEME.items():
        text = text.replace(light, f"var(--{variable})")
    light, dark = (
        " ".join(f"--{variable}: {both[shade]};" for variable, both in _THEME.items())
        for shade in (0, 1)
    )
    style = f".{name} {{ {light} }} @media (prefers-color-scheme: dark) {{ .{name} {{ {dark} }} }}"
    names = f'class="{name} drawing" xmlns="http://www.w3.org/2000/svg"'
    text = text.replace("<svg", f"<svg {names}", 1).replace("#ffffff", "none")
    text = text.replace("xlink:href", "href")
    text = text.replace(">\n", f">\n <style>{style}</style>\n", 1)
    return re.sub(r"\n\s*\n", "\n", text).encode()


def draw_bars(
    axes: Any, rows: Rows, field: str, labels: Sequence[str], marks: Sequence[float | None]
) -> None:
    """Draw a bar for each row, with a mark across it and the range of its runs."""
    _set_rows(axes, labels)
    colours = [COLOURS[row["mode"]] for row in rows]
    bars = axes.barh(range(len(rows)), [row[field] for row in rows], 0.45, color=colours)
    for number, (bar, row, mark) in enumerate(zip(bars, rows, marks, strict=True)):
        bar.set_gid(f"bar-{number}")
        if mark is not None:
            ends = (number - 0.35, number + 0.35)
            axes.plot((mark, mark), ends, color=INK, linewidth=3, gid=f"mark-{number}")
        found = [run[field] for run in row.get("runs", ())]
        if len(set(found)) > 1:
            spread = min(found), max(found)
            axes.plot(spread, (number, number), color=INK, alpha=0.5, marker="|")
    axes.set_xlim(left=0)


def draw_throughput(rows: Rows, axes: Any) -> None:
    """Draw the images/s of each row, with the decode floor as its mark."""
    overs = ["" if row["over_floor"] is None else f", {row['over_floor']:.2f}x" for row in rows]
    texts = [f"{row['images_per_s']:,.0f}/s{o}" for row, o in zip(rows, overs, strict=True)]
    floors = [row.get("floor_images_per_s") for row in rows]
    draw_bars(axes, rows, "images_per_s", _labels(rows, texts, mode=False), floors)


def draw_mixing(rows: Rows, axes: Any) -> None:
    """Draw the shuffle quality of each row, with that of a uniform shuffle as its mark."""
    field = "shuffle_randomness_frac"
    labels = _labels(rows, [f"{row[field]:.2f}" for row in rows])
    draw_bars(axes, rows, field, labels, [1.0] * len(rows))


def draw_worker_time(rows: Rows, axes: Any) -> None:
    """Draw the shares of the workers' time for each row, in per cent."""
    _set_rows(axes, _labels(rows, [f"{row['amplification']:.2f}" for row in rows]))
    left = [0.0] * len(rows)
    for kind, colour in _SHARE_COLOURS.items():
        widths = [row[f"{kind}_pct_worker_time"] for row in rows]
        bars = axes.barh(range(len(rows)), widths, 0.45, left=left, color=colour, label=kind)
        for number, patch in enumerate(bars):
            patch.set_gid(f"part-{kind}-{number}")
            left[number] += widths[number]
    axes.set_xlim(0, 100)
    axes.figure.legend(loc="outside upper left", ncols=3, handlelength=1)


def draw_waits(rows: Rows, axes: Any) -> None:
    """Draw three percentiles of the waits for each row, on a logarithmic scale."""
    from matplotlib.ticker import LogLocator

    _set_rows(axes, _labels(rows, [f"{row['p99_batch_wait_ms']:,.1f} ms" for row in rows]))
    waits = [[max(row[f"p{p}_batch_wait_ms"], 0.01) for p in (50, 95, 99)] for row in rows]
    axes.set_xscale("log")
    is_wide = max(map(max, waits)) > 10 * min(map(min, waits))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if is_wide else (1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    for number, (row, shown) in enumerate(zip(rows, waits, strict=True)):
        colour = COLOURS[row["mode"]]
        style = {"markeredgecolor": colour, "markeredgewidth": 2, "markersize": 9}
        axes.plot((shown[0], shown[-1]), (number, number), color=RULE, linewidth=3)
        looks = ((colour, 1.0), (colour, 0.6), ("white", 1.0))
        for place, (value, (fill, alpha)) in enumerate(zip(shown, looks, strict=True)):
            gid = f"dot-{place}-{number}"
            axes.plot(value, number, "o", color=fill, alpha=alpha, gid=gid, **style)
    axes.set_xlabel("ms")


def draw_start(row: Figures, axes: Any) -> None:
    """Draw the rate in each interval since the start."""
    run, interval_s = row["typical"], row["typical"]["stretch_s"]
    rates = run["samples_per_s_by_stretch"]
    area, usual = steps(rates, interval_s), run["samples_per_s"]
    draw_curve(axes, area, COLOURS[row["mode"]], unit="samples/s", level=usual)
    lowest = f"lowest {row['start_lowest_samples_per_s']:,.0f}"
    if len(rates) < START_INTERVALS:
        seconds, wanted = len(rates) * interval_s, START_INTERVALS * interval_s
        lowest = f"too short: {seconds:.0f} s of {wanted:.0f}"
    first = f"first batch {row['first_batch_latency_s']:.1f} s"
    axes.set_title(f"{row['source']} · {row['workers']}\n{first}, {lowest}")


def draw_memory(most_gb: float, row: Figures, axes: Any) -> None:
    """Draw the memory over time."""
    pss, rss = (row["typical"][f"{name}_gb_over_time"] for name in ("pss", "rss"))
    draw_curve(axes, pss, COLOURS[row["mode"]], unit="GB", line=rss)
    axes.set_ylim(top=most_gb)
    axes.set_title(f"{row['label']}\npeak {row['peak_pss_gb']:.2f} GB")


def draw_curve(
    axes: Any, area: Points, colour: str, *, unit: str = "", line: Points = (), level: float = 0.0
) -> None:
    """Draw a filled curve over seconds, a second dotted one, and a dashed level."""
    if area:
        x, y = zip(*area, strict=True)
        axes.fill_between(x, y, color=colour, alpha=0.16, linewidth=0)
        axes.plot(x, y, color=colour, linewidth=2, gid="curve")
    if line:
        axes.plot(*zip(*line, strict=True), color=SOFT, linestyle=":", linewidth=1.5)
    if level:
        axes.axhline(level, color=INK, linestyle="--", linewidth=1.5)
    axes.locator_params(nbins=4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.grid(axis="y")
    axes.set(xlabel="s", ylabel=unit, xlim=(0, None), ylim=(0, None))


def steps(values: Sequence[float], width: float) -> list[tuple[float, float]]:
    """Return values that each hold for an interval as a curve with steps. Pure."""
    return [(at * width, value) for start, value in enumerate(values) for at in (start, start + 1)]


def _labels(rows: Rows, texts: Sequence[str], *, mode: bool = True) -> list[str]:
    """Return a label of two lines for each row, short enough for a telephone."""
    names = [r["source"] if len(r["source"]) <= 16 else f"{r['source'][:15]}…" for r in rows]
    return [
        f"{name}{' ' + row['mode'] if mode else ''}\n{row['workers']}: {text}"
        for name, row, text in zip(names, rows, texts, strict=True)
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
