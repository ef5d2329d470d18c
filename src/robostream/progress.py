# SPDX-License-Identifier: Apache-2.0
"""Progress of a long job: a labelled bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tqdm import tqdm
from tqdm.std import Bar

from robostream.byte_sizes import format_bytes

T = TypeVar("T")
# A bar narrower than this shows nothing; facts are left out instead, the last one first.
_MIN_BAR = 8
# Without a terminal, a line is printed this often, and one at the end of jobs that have any.
_LINE_EVERY_S = 10.0


class Progress:
    """The progress of one job, on standard error. For one thread.

    Args:
        label: What is done, such as "synth".
        total: How many units the job has.
        unit: What they are, such as "frames"; "B" for bytes.
        fact: Returns one more fact to show, such as "waited 3 %".
        is_shown: Whether to show anything.
        leave: Whether the finished bar stays on the terminal.
    """

    def __init__(
        self,
        label: str,
        total: int,
        unit: str,
        *,
        fact: Callable[[], str] | None = None,
        is_shown: bool = True,
        leave: bool = True,
    ) -> None:
        self._label, self._total, self._unit, self._fact = label, total, unit, fact
        self._done = 0
        self._began = self._printed = time.monotonic()
        self._done_at_line: int | None = None
        self._has_lines = is_shown and not sys.stderr.isatty()
        self._bar = _FittingBar(
            total=total,
            desc=label,
            unit=unit,
            leave=leave,
            dynamic_ncols=True,
            miniters=1,  # each update looks at the clock; nobody else redraws the bar
            disable=not is_shown or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, units: int = 1) -> None:
        """Count units as done."""
        self._done += units
        if self._fact is not None and not self._bar.disable:
            self._bar.set_postfix_str(self._fact(), refresh=False)
        self._bar.update(units)
        if self._has_lines and time.monotonic() - self._printed > _LINE_EVERY_S:
            self._print_line()

    def close(self) -> None:
        """Show how far the job came. Does nothing the second time."""
        self._bar.close()
        if self._done_at_line not in (None, self._done):
            self._print_line()
        self._has_lines, self._done_at_line = False, None

    def _print_line(self) -> None:
        self._printed = time.monotonic()
        self._done_at_line = self._done
        rate = self._done / max(self._printed - self._began, 1e-9)
        fact = self._fact() if self._fact is not None else ""
        share = f"{self._done / self._total:.0%}" if self._total else "0 of 0"
        facts = _facts(rate, self._unit, self._total - self._done, fact)
        print(f"{self._label}: {share}, {', '.join(facts)}", file=sys.stderr, flush=True)


class _FittingBar(tqdm):  # type: ignore[misc]  # tqdm has no type information
    """Draws with `format_bar`; tqdm decides when, and how wide the terminal is."""

    # No thread that looks for bars to redraw: Python 3.12 refuses to start one while it ends.
    monitor_interval = 0

    @staticmethod
    def format_meter(n: float, total: float | None, elapsed: float, **given: Any) -> str:
        """Return the bar as text that fits into the terminal."""
        total = total or 0
        rate = given["rate"] or n / max(elapsed, 1e-9)
        facts = _facts(rate, given["unit"], total - n, given["postfix"] or "")
        share = n / total if total else 0.0
        return format_bar(given["prefix"], share, facts, width=given["ncols"] or 80)


def track(items: Iterable[T], label: str, total: int, unit: str) -> Iterator[T]:
    """Yield items and show how many of them were taken."""
    with Progress(label, total, unit) as progress:
        for item in items:
            yield item
            progress.update()


def format_bar(label: str, share: float, facts: Sequence[str], *, width: int) -> str:
    """Return a labelled bar of at most `width` columns. Pure.

    Leaves out facts, the last first, where the bar would become too narrow.
    """
    head = f"{label} {min(share, 1.0):4.0%} "
    for number in range(len(facts), -1, -1):
        tail = " " + ", ".join(facts[:number]) if number else ""
        room = width - len(head) - len(tail) - 2
        if room >= _MIN_BAR:
            return f"{head}|{Bar(min(max(share, 0.0), 1.0), room, Bar.UTF)}|{tail}"
    return head.rstrip()[:width]


def _facts(rate: float, unit: str, left: float, fact: str) -> list[str]:
    """Return what stands behind a bar, the most important first. Pure."""
    if unit == "B":
        speed = f"{format_bytes(rate)}/s"
    else:
        speed = f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"
    time_left = [f"{tqdm.format_interval(max(left / rate, 0))} left"] if rate else []
    return [speed, *time_left, *([fact] if fact else [])]
