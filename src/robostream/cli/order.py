# SPDX-License-Identifier: Apache-2.0
"""`robostream order`: print the receipts of an order, or find where two orders differ."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from itertools import chain, islice
from pathlib import Path

from robostream.cli.arguments import (
    DATASET_HELP,
    add_option,
    add_plan_arguments,
    add_revision,
    open_plan,
    positive,
    print_result,
    terminal_table,
)
from robostream.errors import WriteError
from robostream.plan import StepReceipt, capture_state, step_receipts, steps_left
from robostream.progress import track
from robostream.tools import Comparison, compare_order_logs, format_line, write_order_log

EXAMPLES = """\
  robostream order ./my-dataset --batch-size 64 --world-size 8
  robostream order ./my-dataset --epochs 3 --log run.jsonl
  robostream order --compare run.jsonl other.jsonl        exits 1 if the orders differ
"""
_SHOWN_STEPS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream order`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("dataset", nargs="?", metavar="DATASET", help=DATASET_HELP)
    two = {"nargs": 2, "metavar": ("A", "B")}
    add_option(what, "--compare", Path, None, "find the step at which two logs fork", **two)
    add_revision(parser)
    parser.add_argument("--log", type=Path, metavar="FILE", help="write all steps to a log")
    parser.add_argument("--json", action="store_true", help="print JSON lines, as in a log")
    steps_help = f"number of steps (all in a log, else {_SHOWN_STEPS})"
    add_option(parser, "--steps", positive, None, steps_help)
    add_option(parser, "--epochs", positive, 1, "number of epochs")
    add_plan_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compare two logs, write one, or print the first steps."""
    if args.compare:
        comparison = compare_order_logs(*args.compare)
        print_result(args, comparison, _describe(comparison, *args.compare))
        return 1 if comparison.fork else 0
    meta, plan, cut = open_plan(args)
    epochs = range(plan.epoch, plan.epoch + args.epochs)
    receipts = chain.from_iterable(
        step_receipts(plan.replace(epoch=epoch), cut, 0) for epoch in epochs
    )
    state = capture_state(plan, 0, fingerprint=meta.fingerprint)
    if args.log:
        steps = args.epochs * steps_left(cut, plan.num_frames, 0)
        wanted = min(steps, args.steps or steps)
        shown = track(islice(receipts, wanted), "order", wanted, "steps")
        try:
            with args.log.open("w") as file:
                written = write_order_log(file, state, shown)
        except OSError as error:
            raise WriteError(
                f"cannot write the log {args.log}: {error.strerror}. Choose another file, or free "
                "space."
            ) from error
        print(f"{written:,} steps written to {args.log}")
        return 0
    first = islice(receipts, args.steps or _SHOWN_STEPS)
    if args.json:
        write_order_log(sys.stdout, state, first)
    else:
        rows = [tuple(format_line(line).values()) for line in first]
        names = [field.name for field in dataclasses.fields(StepReceipt)]
        print(terminal_table(names, rows))
    return 0


def _describe(comparison: Comparison, first: Path, second: Path) -> str:
    settings = "".join(f"\n  {difference}" for difference in comparison.settings)
    heads = f"\nTheir heads differ in:{settings}" if settings else ""
    until = "from the start"
    if comparison.agreed:
        until = "after epoch {}, position {:,}".format(*comparison.agreed)
    if comparison.fork is None:
        return (
            f"{first} and {second} agree at all {comparison.compared:,} positions they share, "
            f"the last {until}.{heads}"
        )
    one, two = comparison.fork
    return (
        f"{first} and {second} fork {until}: in step {one['step']} of epoch {one['epoch']} "
        f"(step {two['step']} of the second log), which ends at position {one['stop']:,}, the "
        f"receipts are {one['receipt']} and {two['receipt']}.{heads}"
    )
