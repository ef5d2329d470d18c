# SPDX-License-Identifier: Apache-2.0
"""The README's picture: throughput beside the floor, and the first minute of a run. Pure."""

from __future__ import annotations

from html import escape

from robostream.bench.results import Figures

_WIDTH = 860
_LEFT, _RIGHT = 200, 190
_LINE, _BAR = 34, 18
_TOP = 74
_CURVE = 120
_INK, _SOFT, _RULE = "#16202c", "#5b6775", "#e3e7ec"
_COLOURS = {"single": "#2f6df6", "sarm": "#e0742a"}


def picture_svg(figures: Figures) -> str:
    """Return the picture as SVG, on paper of its own, for light and dark pages."""
    cases = figures["cases"]
    below = _TOP + len(cases) * _LINE + 66
    height = below + _CURVE + 46
    parts = [
        _text(24, 36, "Images per second, after the warm-up", size=17, weight=600),
        f'<rect x="26" y="49" width="3" height="14" fill="{_INK}"/>',
        _text(38, 61, "decoding the same files alone, in as many processes", colour=_SOFT),
        _bars(cases),
        _text(24, below - 22, _minute_title(figures), size=17, weight=600),
        _minute(figures["first_minute"], below),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif" '
        f'font-size="14"><rect width="{_WIDTH}" height="{height}" rx="14" fill="#fff" '
        f'stroke="{_RULE}"/>{"".join(parts)}</svg>\n'
    )


def _bars(cases: list[Figures]) -> str:
    top = max(max(case["images_per_s"], case["floor_images_per_s"]) for case in cases)
    scale = (_WIDTH - _LEFT - _RIGHT) / top
    return "".join(
        _bar(case, _TOP + place * _LINE, scale, _LEFT + top * scale)
        for place, case in enumerate(cases)
    )


def _bar(case: Figures, y: float, scale: float, right: float) -> str:
    length, floor = case["images_per_s"] * scale, case["floor_images_per_s"] * scale
    middle = y + _LINE / 2
    text = f"{case['images_per_s']:,.0f}  ·  {case['over_floor']:.2f} of it"
    return (
        _text(24, middle + 5, f"{case['name']} · {case['mode']}")
        + f'<rect x="{_LEFT}" y="{middle - _BAR / 2}" width="{length:.1f}" height="{_BAR}" rx="4" '
        f'fill="{_COLOURS[case["mode"]]}"/>'
        f'<rect x="{_LEFT + floor - 1.5:.1f}" y="{middle - _BAR / 2 - 4}" width="3" '
        f'height="{_BAR + 8}" fill="{_INK}"/>' + _text(right + 16, middle + 5, text, colour=_SOFT)
    )


def _minute_title(figures: Figures) -> str:
    first = figures["first_minute"]
    epochs = first["frames_measured"] / first["dataset"]["frames"]
    return (
        "The first minute with nothing set: samples per second in each "
        f"{first['stretch_s']:.0f} s, over {epochs:.0f} epochs"
    )


def _minute(first: Figures, y: float) -> str:
    rates, width = first["samples_per_s_by_stretch"], _WIDTH - 48 - 70
    top = max(rates)
    step = width / len(rates)
    points = [
        f"{24 + (place + side) * step:.1f},{y + _CURVE - rate / top * _CURVE:.1f}"
        for place, rate in enumerate(rates)
        for side in (0, 1)
    ]
    ground = f"M24,{y + _CURVE} L{' L'.join(points)} L{24 + width},{y + _CURVE} Z"
    blue = _COLOURS["single"]
    return (
        f'<path d="{ground}" fill="{blue}" opacity="0.16"/>'
        f'<path d="M{" L".join(points)}" fill="none" stroke="{blue}" stroke-width="2"/>'
        f'<path d="M24,{y + _CURVE} H{24 + width}" stroke="{_SOFT}"/>'
        f'<path d="M24,{y} H{24 + width}" stroke="{_RULE}"/>'
        + _text(24 + width + 8, y + 5, f"{top:,.0f}", colour=_SOFT)
        + _text(24, y + _CURVE + 22, "0 s", colour=_SOFT)
        + _text(
            width - 6, y + _CURVE + 22, f"{len(rates) * first['stretch_s']:.0f} s", colour=_SOFT
        )
    )


def _text(
    x: float, y: float, text: str, *, size: int = 14, weight: int = 400, colour: str = _INK
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}">{escape(text)}</text>'
    )
