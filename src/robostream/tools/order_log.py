# SPDX-License-Identifier: Apache-2.0
"""Logs of an order: write one, and find where two of them fork.

A log is a JSON Lines file: first the settings of the order, then one line per step with the
position after it, the digest of its frames and the receipt of the epoch so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from robostream.errors import StateError
from robostream.plan import PlanState, StepReceipt, format_receipt

_IDENTITY = ("fingerprint", "selection", "num_frames", "seed", "lanes", "pool_size", "shuffle")
# The keys that the first line and all others must have.
_HEAD = {"order_log"}
_STEP = {"epoch", "step", "stop", "receipt"}
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two logs."""

    compared: int  # number of positions at which both logs have a receipt
    settings: list[str]  # settings that differ, as "name: value, value"
    fork: tuple[Line, Line] | None  # the first lines whose receipts differ
    agreed: tuple[int, int] | None  # the last equal (epoch, position) before it


def write_order_log(file: TextIO, state: PlanState, receipts: Iterable[StepReceipt]) -> None:
    """Write the log of an order to an open file."""
    values = state.to_dict()
    head = {"order_log": 1} | {name: values[name] for name in _IDENTITY}
    file.write(json.dumps(head) + "\n")
    file.writelines(json.dumps(format_line(line)) + "\n" for line in receipts)


def format_line(line: StepReceipt) -> Line:
    """Return one step as a line of a log. Pure."""
    return {
        "epoch": line.epoch,
        "step": line.step,
        "stop": line.stop,
        "digest": format_receipt(line.digest),
        "receipt": format_receipt(line.receipt),
    }


def compare_order_logs(first: Path, second: Path) -> Comparison:
    """Return where two logs fork. Steps of different sizes are compared where they end together."""
    lines_a, lines_b = _read(first), _read(second)
    head_a, head_b = next(lines_a), next(lines_b)
    other = [name for name in _IDENTITY if head_a.get(name) != head_b.get(name)]
    settings = [f"{name}: {head_a.get(name)}, {head_b.get(name)}" for name in other]
    compared, agreed = 0, None
    for one, two in _common_positions(lines_a, lines_b):
        compared += 1
        if one["receipt"] != two["receipt"]:
            return Comparison(compared, settings, (one, two), agreed)
        agreed = _stop(one)
    if not compared:
        raise StateError(
            f"{first} and {second} have no position in common, so there is nothing to compare. "
            "Log the same epochs from the same position."
        )
    return Comparison(compared, settings, None, agreed)


def logged_digest(path: Path, state: PlanState, epoch: int, start: int, stop: int) -> int | None:
    """Return the digest of what a run delivered from one position to another, by its log.

    None if no logged step ends at each of the two positions. Receipts are sums, so the digest is
    the difference of two, of whatever steps. Raises StateError if the log is of another order.
    """
    lines = _read(path)
    head, values = next(lines, {}), state.to_dict()
    if other := [name for name in _IDENTITY if head.get(name) != values[name]]:
        told = "{} is {!r} in the log and {!r} in the state".format
        differences = "; ".join(told(name, head.get(name), values[name]) for name in other)
        raise StateError(f"{path} is the log of another order: {differences}")
    receipts = {0: 0}
    for line in lines:  # a run that was killed and resumed logs some steps twice
        if line["epoch"] == epoch and line["stop"] in (start, stop):
            receipts[line["stop"]] = int(line["receipt"], 16)
    if not {start, stop} <= set(receipts):
        return None
    return (receipts[stop] - receipts[start]) % (1 << 64)


def _common_positions(first: Iterator[Line], second: Iterator[Line]) -> Iterator[tuple[Line, Line]]:
    one, two = next(first, None), next(second, None)
    while one is not None and two is not None:
        if _stop(one) == _stop(two):
            yield one, two
            one, two = next(first, None), next(second, None)
        elif _stop(one) < _stop(two):
            one = next(first, None)
        else:
            two = next(second, None)


def _stop(line: Line) -> tuple[int, int]:
    return line["epoch"], line["stop"]


def _read(path: Path) -> Iterator[Line]:
    try:
        with path.open() as file:
            for number, text in enumerate(file, start=1):
                yield _checked(json.loads(text), _HEAD if number == 1 else _STEP)
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path}: not a log of an order ({error}). "
            "Write one with: robostream order DATASET --log FILE"
        ) from error


def _checked(line: Any, names: set[str]) -> Line:
    if not isinstance(line, dict) or not names <= set(line):
        raise ValueError(f"want a line with {sorted(names)}, found {line}")
    return line
