# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch: `robostream order`, `explain` and `shuffle`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from robostream import config, tools
from robostream.assemble import DatasetLocation, SampleOptions, open_dataset
from robostream.byte_sizes import format_bytes
from robostream.cli import arguments as cli
from robostream.cli.plan import add_plan_arguments, open_plan
from robostream.errors import SelectionError, WriteError
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import (
    Cut,
    StepReceipt,
    capture_state,
    default_lanes,
    format_receipt,
    step_receipts,
    steps_left,
)
from robostream.progress import track
from robostream.storage import ByteRange, coalesce

_ORDER_EXAMPLES = """\
  robostream order ./my-dataset --batch-size 64 --world-size 8
  robostream order ./my-dataset --epochs 3 --log run.jsonl
  robostream order --compare run.jsonl other.jsonl        exits 1 if the orders differ
"""
_SHOWN_STEPS = 10


def _configure_order(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("dataset", nargs="?", metavar="DATASET", help=cli.DATASET_HELP)
    two = {"nargs": 2, "metavar": ("A", "B")}
    cli.add_option(what, "--compare", Path, None, "find the step at which two logs fork", **two)
    cli.add_revision(parser)
    parser.add_argument("--log", type=Path, metavar="FILE", help="write all steps to a log")
    parser.add_argument("--json", action="store_true", help="print JSON lines, as in a log")
    steps_help = f"number of steps (all in a log, else {_SHOWN_STEPS})"
    cli.add_option(parser, "--steps", cli.positive, None, steps_help)
    cli.add_option(parser, "--epochs", cli.positive, 1, "number of epochs")
    add_plan_arguments(parser)


def _run_order(args: argparse.Namespace) -> int:
    """Compare two logs, write one, or print the first steps."""
    if args.compare:
        comparison = tools.compare_order_logs(*args.compare)
        cli.print_result(args, comparison, _describe_comparison(comparison, *args.compare))
        return 1 if comparison.fork else 0
    meta, plan, cut = open_plan(args)
    epochs = range(plan.epoch, plan.epoch + args.epochs)
    by_epoch = (step_receipts(plan.replace(epoch=epoch), cut, 0) for epoch in epochs)
    receipts = chain.from_iterable(by_epoch)
    state = capture_state(plan, 0, fingerprint=meta.fingerprint)
    if args.log:
        steps = args.epochs * steps_left(cut, plan.num_frames, 0)
        wanted = min(steps, args.steps or steps)
        shown = track(islice(receipts, wanted), "order", wanted, "steps")
        try:
            with args.log.open("w") as file:
                tools.write_order_log(file, state, shown)
        except OSError as error:
            raise WriteError(
                f"cannot write the log {args.log}: {error.strerror}. Choose another file, or free "
                "space."
            ) from error
        print(f"{wanted:,} steps written to {args.log}")
        return 0
    first = islice(receipts, args.steps or _SHOWN_STEPS)
    if args.json:
        tools.write_order_log(sys.stdout, state, first)
    else:
        rows = [tuple(tools.format_line(line).values()) for line in first]
        names = [field.name for field in dataclasses.fields(StepReceipt)]
        print(cli.terminal_table(names, rows))
    return 0


def _describe_comparison(comparison: tools.Comparison, first: Path, second: Path) -> str:
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


_EXPLAIN_EXAMPLES = """\
  robostream explain ./my-dataset --state loader_state.json --step 812 --batch-size 64
  robostream explain ./my-dataset --state checkpoint.pt --step 812 --batch-size 8 --world-size 8 \\
      --png spike.png --log order.jsonl
exit codes: 0 success, 1 the log does not confirm it, or an error, 2 wrong usage
"""
_MOST_SAMPLES = 64


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    cli.add_dataset(parser)
    state_help = "a saved state of the run: JSON, or a checkpoint of torch that holds one"
    parser.add_argument("--state", type=Path, required=True, metavar="FILE", help=state_help)
    step_help = "the step, counted over the epoch from 0, the same for all ranks; see --from"
    parser.add_argument("--step", type=cli.natural, required=True, metavar="N", help=step_help)
    batch: dict[str, Any] = {"type": cli.positive, "required": True, "metavar": "B"}
    parser.add_argument("--batch-size", **batch, help="samples per rank and step")
    cli.add_option(parser, "--world-size", cli.positive, 1, "number of ranks")
    from_help = "where step 0 begins: the position at which a run resumed with another global batch"
    place: dict[str, Any] = {"dest": "counted_from", "metavar": "POSITION"}
    cli.add_option(parser, "--from", cli.natural, 0, from_help, **place)
    cli.add_option(parser, "--epoch", cli.natural, None, "the epoch (that of the state)")
    cli.add_episodes(parser)
    log_help = "a log of the run's order: confirm that it delivered these frames"
    parser.add_argument("--log", type=Path, metavar="FILE", help=log_help)
    sheet_help = "write a contact sheet of the batch"
    parser.add_argument("--png", type=Path, metavar="SHEET", help=sheet_help)
    most_help = "samples in the table and on the sheet, at most"
    cli.add_option(parser, "--most", cli.positive, _MOST_SAMPLES, most_help)
    cli.add_json(parser, "all samples with their files and byte ranges")


def _run_explain(args: argparse.Namespace) -> int:
    """Print what made the batch; exit code 1 if the log does not confirm it."""
    location = DatasetLocation(args.dataset, revision=args.revision)
    state = tools.load_state(args.state)
    cut = Cut(0, args.world_size, args.batch_size, drop_last=False)
    dataset = open_dataset(location, SampleOptions(episodes=args.episodes))
    place = {"epoch": args.epoch, "counted_from": args.counted_from}
    found = tools.explain_batch(dataset, state, cut, args.step, **place)
    if args.png:
        tools.save_sheet(args.png, tools.batch_sheet(dataset, found, most=args.most))
    result = dataclasses.asdict(found) | {"digest": format_receipt(found.digest)}
    text = _explanation_text(found, args.most)
    if args.log:
        logged = tools.logged_digest(args.log, state, found.epoch, found.start, found.stop)
        delivered = None if logged is None else format_receipt(logged)
        result |= {"delivered": delivered, "is_confirmed": delivered == result["digest"]}
        text += f"\n\n{_verdict(args.log, result)}"
    if args.png:
        result |= {"sheet": args.png}
        text += f"\n\ncontact sheet written to {args.png}"
    cli.print_result(args, result, text)
    return 0 if result.get("is_confirmed", True) else 1


def _verdict(log: Path, result: dict[str, Any]) -> str:
    if result["is_confirmed"]:
        return f"{log} confirms it: the run delivered these frames (digest {result['digest']})"
    if result["delivered"] is None:
        return (
            f"{log} does not say: no logged step ends at position {result['start']:,} and another "
            f"at {result['stop']:,} of epoch {result['epoch']}. Are --batch-size, --world-size and "
            "--epoch those of the run? Did it resume with another global batch (--from)?"
        )
    return (
        f"{log} CONTRADICTS it: the run delivered other frames (digest {result['delivered']}, not "
        f"{result['digest']}). It had other episodes in quarantine, or another version of the order"
    )


def _explanation_text(found: tools.BatchExplanation, most: int) -> str:
    episodes = {sample.episode for sample in found.samples}
    origin = f", counted from position {found.counted_from:,}" if found.counted_from else ""
    summary = (
        f"step {found.step:,} of {found.steps:,} of epoch {found.epoch}{origin}: positions "
        f"{found.start:,} to {found.stop - 1:,}, {len(found.samples):,} samples of "
        f"{len(episodes):,} episodes"
    )
    if found.quarantined:
        numbers = ", ".join(map(str, found.quarantined))
        summary += f"\nwith the episodes {numbers} in quarantine, as in the state"
    header = ("position", "rank", "episode", "frame", "seconds", "index", "tasks")
    rows = []
    for s in found.samples[:most]:
        tasks = ", ".join(s.tasks) + (" (repeated)" if s.is_repeated else "")
        rows.append((s.position, s.rank, s.episode, s.frame, f"{s.seconds:.2f}", s.index, tasks))
    hidden = len(found.samples) - len(rows)
    more = f"\n... {hidden:,} more; --most or --json shows them" if hidden else ""
    files = ("file", "samples", "ranges", "bytes")
    return (
        f"{summary}\n\n{cli.terminal_table(header, rows)}{more}\n\n"
        f"{cli.terminal_table(files, _file_rows(found.samples))}"
    )


def _file_rows(samples: Sequence[tools.BatchSample]) -> list[tuple[str, int, int, str]]:
    """Return for each file the samples that need it, and its bytes, those shared counted once."""
    users: dict[str, set[int]] = defaultdict(set)
    parts: dict[str, list[ByteRange]] = defaultdict(list)
    for sample in samples:
        for source in sample.sources:
            users[source.file].add(sample.position)
            parts[source.file].append(ByteRange(source.start, source.stop))
    rows = []
    for file, ranges in sorted(parts.items()):
        joined = coalesce(ranges, max_gap_bytes=0, max_read_bytes=1 << 60)
        size = sum(part.stop - part.start for part in joined)
        rows.append((file, len(users[file]), len(joined), format_bytes(size)))
    return rows


_SHUFFLE_EXAMPLES = """\
  robostream shuffle ./my-dataset
  robostream shuffle ./my-dataset --pool-sizes 16 64 256 --batch-size 256 --plot shuffle.svg
  robostream shuffle --episodes 2000 --mean-length 150     invented episodes, no dataset needed
"""
_LEGEND = """\
method       robostream: the order of StreamingLeRobotDataset
             reference pool: LeRobot's streaming, a pool of episodes
             shuffle buffer: single frames, filled in dataset order
             uniform: a permutation of all frames, the best there is
pool_size    episodes mixed at a time
distinct     different episodes in a batch, on average
diversity    distinct, as a share of a uniform shuffle's
gap          samples from one of an episode to its next, on average;
             so many episodes are open
correlation  of place in the order with place in the dataset; 0 is best"""


def _configure_shuffle(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("dataset", nargs="?", metavar="DATASET", help=cli.DATASET_HELP)
    what.add_argument("--episodes", type=cli.positive, help="invent this many episodes instead")
    add = partial(cli.add_option, parser)
    add("--mean-length", cli.positive, 150, "mean length of invented episodes")
    cli.add_revision(parser)
    add("--batch-size", cli.positive, 64, "samples per global batch")
    add("--lanes", cli.positive, None, "number of lanes (chosen by the loader from episodes)")
    sizes_help = "episodes mixed at a time (16 64 256)"
    add("--pool-sizes", cli.positive, [16, 64, 256], sizes_help, nargs="+", metavar="N")
    add("--seed", cli.natural, config.SEED, "seed of the shuffle")
    add("--plot", _image_path, None, "draw a plot (.svg, .png, .pdf)", metavar="FILE")
    cli.add_json(parser, "all figures")


def _run_shuffle(args: argparse.Namespace) -> int:
    if args.dataset:
        meta = LeRobotDatasetMetadata(args.dataset, revision=args.revision)
        meta.ensure_readable()
        lengths = meta.episodes["length"]
    else:
        lengths = tools.made_up_lengths(args.episodes, args.mean_length, seed=args.seed)
    measured = tools.measure_methods(
        lengths,
        batch_size=args.batch_size,
        lanes=args.lanes or default_lanes(len(lengths), 1, shuffle=True),
        pool_sizes=args.pool_sizes,
        seed=args.seed,
    )
    qualities = list(track(measured, "shuffle", 3 * len(args.pool_sizes) + 1, "orders"))
    rows = [dataclasses.asdict(quality) for quality in qualities]
    table = cli.terminal_table(list(rows[0]), [list(row.values()) for row in rows])
    cli.print_result(args, rows, f"{table}\n\n{_LEGEND}")
    if args.plot:
        tools.plot_qualities(qualities, args.batch_size, args.plot)
    return 0


def _image_path(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"want a name that ends in .svg, .png or .pdf, got {text}")
    return path


SUBCOMMANDS = {
    "order": cli.Command(_ORDER_EXAMPLES, _configure_order, _run_order),
    "explain": cli.Command(_EXPLAIN_EXAMPLES, _configure_explain, _run_explain, (SelectionError,)),
    "shuffle": cli.Command(_SHUFFLE_EXAMPLES, _configure_shuffle, _run_shuffle),
}
