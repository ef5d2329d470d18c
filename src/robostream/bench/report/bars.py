# SPDX-License-Identifier: Apache-2.0
"""Charts made of boxes: bars with a mark, stacks of shares, ranges on a logarithmic scale. Pure.

Boxes are as wide as a share of the page, so that they fit a telephone and their text stays large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        label: What it is of.
        value: How long it is.
        text: What is said of it.
        mark: Where a line is drawn across; None for nowhere.
        spread: The least and the most of several runs.
        kind: Its colour, as a class of the style sheet.
    """

    label: str
    value: float
    text: str
    mark: float | None
    spread: tuple[float, float]
    kind: str


def bar_chart(bars: Sequence[Bar]) -> str:
    """Return bars below each other, all on one scale that begins at 0."""
    top = max(max(bar.value, bar.mark or 0, bar.spread[1]) for bar in bars) or 1.0
    return "".join(_line(bar.label, bar.text, _bar(bar, top)) for bar in bars)


def _bar(bar: Bar, top: float) -> str:
    low, high = bar.spread
    drawn = f'<i class="fill {bar.kind}" style="width:{_percent(bar.value, top)}"></i>'
    if high > low:
        width = _percent(high - low, top)
        drawn += f'<i class="spread" style="left:{_percent(low, top)};width:{width}"></i>'
    if bar.mark is not None:
        drawn += f'<i class="mark" style="left:{_percent(bar.mark, top)}"></i>'
    return f'<div class="track">{drawn}</div>'


@dataclass(frozen=True, slots=True)
class Stack:
    """Shares of a whole, by kind, in per cent."""

    label: str
    text: str
    shares: dict[str, float]


def stack_chart(stacks: Sequence[Stack]) -> str:
    """Return stacks below each other, each as long as the whole."""
    return "".join(_line(stack.label, stack.text, _stack(stack)) for stack in stacks)


def _stack(stack: Stack) -> str:
    parts = "".join(
        f'<i class="part {kind}" style="width:{share:.2f}%" title="{kind}: {share:.1f} %"></i>'
        for kind, share in stack.shares.items()
    )
    return f'<div class="track whole">{parts}</div>'


@dataclass(frozen=True, slots=True)
class Range:
    """Three percentiles in ms, in rising order."""

    label: str
    text: str
    percentiles: tuple[float, float, float]
    kind: str


def range_chart(ranges: Sequence[Range]) -> str:
    """Return ranges below each other on one logarithmic scale, with its powers of ten."""
    values = [value for one in ranges for value in one.percentiles]
    low, high = _decades(values)
    ticks = "".join(
        f'<span style="left:{_log_percent(10.0**power, low, high)}">{_tick(power)}</span>'
        for power in range(low, high + 1)
    )
    scale = f'<div class="line"><div class="scale">{ticks}</div></div>'
    return scale + "".join(_line(one.label, one.text, _range(one, low, high)) for one in ranges)


def _range(one: Range, low: int, high: int) -> str:
    places = [_log_percent(value, low, high) for value in one.percentiles]
    bar = f'<i class="reach" style="left:{places[0]};right:calc(100% - {places[2]})"></i>'
    dots = "".join(
        f'<i class="dot {name} {one.kind}" style="left:{place}"></i>'
        for name, place in zip(("p50", "p95", "p99"), places, strict=True)
    )
    return f'<div class="track thin">{bar}{dots}</div>'


def _line(label: str, text: str, drawn: str) -> str:
    return (
        f'<div class="line"><div class="label">{escape(label)}</div>'
        f'<div class="text">{escape(text)}</div>{drawn}</div>'
    )


def _percent(value: float, top: float) -> str:
    return f"{100 * value / top:.2f}%"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten that hold all values, which are taken as 0.01 ms or more."""
    logs = [math.log10(max(value, 0.01)) for value in values]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return low, max(high, low + 1)


def _log_percent(value: float, low: int, high: int) -> str:
    return f"{100 * (math.log10(max(value, 0.01)) - low) / (high - low):.2f}%"


def _tick(power: int) -> str:
    return f"{10**power:,} ms" if power >= 0 else f"{10.0**power:g} ms"
