# SPDX-License-Identifier: Apache-2.0
"""Charts over time: SVG that is stretched to the page, with text beside it that is not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 300.0, 100.0
# The scale goes on above the highest value, so that its text covers no curve.
_HEADROOM = 1.2


@dataclass(frozen=True, slots=True)
class Curve:
    """One small chart.

    Attributes:
        label: What it is of.
        text: What is said of it.
        area: The curve with the ground below it filled.
        line: Another one, drawn thin; may be empty.
        level: A value that is marked by a dashed line; None for none.
        kind: Its colour, as a class of the style sheet.
    """

    label: str
    text: str
    area: Points
    line: Points
    level: float | None
    kind: str


def curve_chart(curves: Sequence[Curve], *, unit: str) -> str:
    """Return small charts beside each other, all on one scale."""
    points = [point for curve in curves for point in (*curve.area, *curve.line)]
    right = max((x for x, _ in points), default=1.0) or 1.0
    levels = [curve.level for curve in curves if curve.level is not None]
    highest = max([*levels, *(y for _, y in points)], default=1.0) or 1.0
    top = _HEADROOM * highest
    drawn = "".join(_curve(curve, right, top, unit) for curve in curves)
    return f'<div class="curves">{drawn}</div>'


def steps(values: Sequence[float], width: float) -> list[tuple[float, float]]:
    """Return values that each hold for a stretch as a curve with steps."""
    return [
        point
        for place, value in enumerate(values)
        for point in ((place * width, value), ((place + 1) * width, value))
    ]


def _curve(curve: Curve, right: float, top: float, unit: str) -> str:
    def place(point: tuple[float, float]) -> str:
        return f"{point[0] / right * _WIDTH:.1f},{_HEIGHT - point[1] / top * _HEIGHT:.1f}"

    parts = []
    if curve.area:
        path = " L".join(map(place, curve.area))
        last, first = curve.area[-1][0] / right * _WIDTH, curve.area[0][0] / right * _WIDTH
        parts.append(
            f'<path class="ground {curve.kind}" d="M{path} L{last:.1f},{_HEIGHT} '
            f'L{first:.1f},{_HEIGHT} Z"/><path class="curve {curve.kind}" d="M{path}"/>'
        )
    if curve.line:
        parts.append(f'<path class="second" d="M{" L".join(map(place, curve.line))}"/>')
    if curve.level is not None:
        height = f"{_HEIGHT - curve.level / top * _HEIGHT:.1f}"
        parts.append(f'<path class="level" d="M0,{height} L{_WIDTH},{height}"/>')
    return (
        f'<figure><figcaption><span class="label">{escape(curve.label)}</span>'
        f'<span class="text">{escape(curve.text)}</span></figcaption>'
        f'<div class="plot"><svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" '
        f'preserveAspectRatio="none" role="img" aria-label="{escape(curve.label)}">'
        f"{''.join(parts)}</svg>"
        f'<span class="top">{_number(top)} {escape(unit)}</span>'
        f'<span class="end">{right:.0f} s</span></div></figure>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2g}"
