# SPDX-License-Identifier: Apache-2.0
"""Draw the README's chart, robostream beside LeRobot, and write its sentence, from peers.json.

Usage: `python scripts/draw_peers.py [REPO]`. `make bench-peers` runs it after the measurement.
Needs no package; the drawing has the colours of a light and of a dark page.
"""

from __future__ import annotations

import json
import re
import sys
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path("benchmarks/results/peers.json")
CHART = Path("docs/drawings/peers.svg")
MODES = {"single": "", "sarm": ", windows of 8 frames"}
MARKS = ("<!-- peers: begin -->", "<!-- peers: end -->")
WIDTH, LABELS, BARS = 440, 138, 210
BAR, GAP, TITLE = 16, 5, 24
STYLE = """\
  <style>
    .peers { --ink: #1f2937; --soft: #5b6775; }
    .peers { --ours: #2f6df6; --theirs: #8a94a3; --failed: #c2410c; }
    @media (prefers-color-scheme: dark) {
      .peers { --ink: #e6e9ee; --soft: #a3adba; }
      .peers { --ours: #6f9dff; --theirs: #7d8896; --failed: #f09a5b; }
    }
    .peers text { fill: var(--ink); font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
    .peers text.title { font-weight: 600; }
    .peers text.soft { fill: var(--soft); }
    .peers text.failed { fill: var(--failed); }
    .peers .ours { fill: var(--ours); }
    .peers .theirs { fill: var(--theirs); }
  </style>
"""
Figures = dict[str, Any]


def cases(figures: Figures) -> dict[str, dict[str, Figures]]:
    """Return the rows of each case by loader: robostream, and LeRobot's two. Pure.

    LeRobot's map-style loader is shown with the faster of its video backends.
    """
    found: dict[str, dict[str, Figures]] = {}
    for row in figures["results"]:
        case = found.setdefault(row["data"] + MODES[row["mode"]], {})
        name = row["contestant"]
        if name in ("robostream", "LeRobot, streaming"):
            case[name.replace(",", "")] = row
        elif name.startswith("LeRobot, map-style"):
            known = case.get("LeRobot map-style", {})
            if row.get("samples_per_s", 0) >= known.get("samples_per_s", 0):
                case["LeRobot map-style"] = row
    return found


def ratio(ours: Figures, theirs: Figures) -> str:
    """Return how many times faster the first is: the median of the rounds. Pure."""
    rounds = zip(ours["images_per_s_rounds"], theirs["images_per_s_rounds"], strict=True)
    return f"{median(a / b for a, b in rounds):.1f}"


def chart(figures: Figures) -> str:
    """Return the SVG. Pure."""
    lines: list[str] = []
    shown = cases(figures)
    most = max(row.get("samples_per_s", 0) for rows in shown.values() for row in rows.values())
    y = 16
    about = (
        f"Samples per second; {figures['workers']} workers, {figures['machine']['cpus']} CPU cores"
    )
    lines.append(f'<text class="soft" x="0" y="{y}">{about}</text>')
    for title, rows in shown.items():
        y += TITLE + 6
        # The fourth part of a title and what follows, on a line of their own.
        head, more = ", ".join(title.split(", ")[:3]), ", ".join(title.split(", ")[3:])
        lines.append(f'<text class="title" x="0" y="{y}">{escape(head)}</text>')
        if more:
            y += 17
            lines.append(f'<text class="soft" x="0" y="{y}">{escape(more)}</text>')
        y += 8
        for name, row in rows.items():
            lines += _bar(name, row, y, most)
            y += BAR + GAP
    return (
        f'<svg class="peers drawing" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" height="{y + 4}">\n'
        f"{STYLE}" + "".join(f"  {line}\n" for line in lines) + "</svg>\n"
    )


def _bar(name: str, row: Figures, y: int, most: float) -> list[str]:
    label = f'<text x="0" y="{y + 13}">{name}</text>'
    if "failed" in row:
        reason = escape(row["failed"].split(":")[0])
        return [label, f'<text class="failed" x="{LABELS}" y="{y + 13}">failed ({reason})</text>']
    width = BARS * row["samples_per_s"] / most
    kind = "ours" if name == "robostream" else "theirs"
    return [
        label,
        f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
        f'<text x="{LABELS + width + 8:.1f}" y="{y + 13}">{row["samples_per_s"]:,.0f}</text>',
    ]


def sentence(figures: Figures) -> str:
    """Return the README's sentence about the chart. Pure."""
    shown = cases(figures)
    first = next(iter(shown))
    windows = first + MODES["sarm"]
    faster = {
        name: ratio(shown[name]["robostream"], shown[name]["LeRobot map-style"])
        for name in (first, windows)
    }
    return (
        f"On {figures['machine']['cpus']} CPU cores and with nothing set, robostream delivers "
        f"**{faster[first]} times** as many samples per second as LeRobot "
        f"{figures['packages']['lerobot']}'s map-style loader, and **{faster[windows]} times** "
        "with windows of 8 frames."
    )


def refreshed(readme: str, figures: Figures) -> str:
    """Return the README with the sentence of these figures. Pure."""
    begin, end = map(re.escape, MARKS)
    block = f"{MARKS[0]}\n{sentence(figures)}\n{MARKS[1]}"
    text, count = re.subn(f"{begin}.*?{end}", lambda _: block, readme, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"README.md: want the marks {MARKS} once, found them {count} times")
    return text


def main(repo: Path) -> None:
    """Refresh chart and sentence of a checkout."""
    figures = json.loads((repo / RESULTS).read_text())
    (repo / CHART).write_text(chart(figures))
    readme = repo / "README.md"
    readme.write_text(refreshed(readme.read_text(), figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
