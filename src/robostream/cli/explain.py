# SPDX-License-Identifier: Apache-2.0
"""`robostream explain`: which frames, files and bytes made a batch of a run."""

from __future__ import annotations

import argparse
import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robostream.assemble import DatasetLocation, SampleOptions, open_dataset
from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import (
    add_dataset,
    add_episodes,
    add_json,
    add_option,
    fail,
    natural,
    positive,
    print_result,
    terminal_table,
)
from robostream.errors import SelectionError
from robostream.plan import Cut, format_receipt
from robostream.storage import ByteRange, coalesce
from robostream.tools import (
    BatchExplanation,
    BatchSample,
    batch_sheet,
    explain_batch,
    load_state,
    logged_digest,
    save_sheet,
)

EXAMPLES = """\
  robostream explain ./my-dataset --state loader_state.json --step 812 --batch-size 64
  robostream explain ./my-dataset --state checkpoint.pt --step 812 --batch-size 8 --world-size 8 \\
      --png spike.png --log order.jsonl
exit codes: 0 success, 1 the log does not confirm it, or an error, 2 wrong usage
"""
_SHOWN_SAMPLES = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream explain`."""
    add_dataset(parser)
    state_help = "a saved state of the run: JSON, or a checkpoint of torch that holds one"
    parser.add_argument("--state", type=Path, required=True, metavar="FILE", help=state_help)
    step_help = "the step, counted over the epoch from 0, the same for all ranks; see --from"
    parser.add_argument("--step", type=natural, required=True, metavar="N", help=step_help)
    batch_help = "samples per rank and step"
    parser.add_argument("--batch-size", type=positive, required=True, metavar="B", help=batch_help)
    add_option(parser, "--world-size", positive, 1, "number of ranks")
    from_help = "where step 0 begins: the position at which a run resumed with another global batch"
    place: dict[str, Any] = {"dest": "counted_from", "metavar": "POSITION"}
    add_option(parser, "--from", natural, 0, from_help, **place)
    add_option(parser, "--epoch", natural, None, "the epoch (that of the state)")
    add_episodes(parser)
    log_help = "a log of the run's order: confirm that it delivered these frames"
    parser.add_argument("--log", type=Path, metavar="FILE", help=log_help)
    sheet_help = "write a contact sheet of the batch"
    parser.add_argument("--png", type=Path, metavar="SHEET", help=sheet_help)
    most_help = "samples in the table and on the sheet, at most"
    add_option(parser, "--most", positive, _SHOWN_SAMPLES, most_help)
    add_json(parser, "all samples with their files and byte ranges")


def run(args: argparse.Namespace) -> int:
    """Print what made the batch; exit code 1 if the log does not confirm it."""
    location = DatasetLocation(args.dataset, revision=args.revision)
    state, cut = load_state(args.state), Cut(0, args.world_size, args.batch_size, drop_last=False)
    try:
        dataset = open_dataset(location, SampleOptions(episodes=args.episodes))
        place = {"epoch": args.epoch, "counted_from": args.counted_from}
        found = explain_batch(dataset, state, cut, args.step, **place)
        if args.png:
            save_sheet(args.png, batch_sheet(dataset, found, most=args.most))
    except SelectionError as error:
        return fail(args, error, 2)
    result = dataclasses.asdict(found) | {"digest": format_receipt(found.digest)}
    text = _as_text(found, args.most)
    if args.log:
        logged = logged_digest(args.log, state, found.epoch, found.start, found.stop)
        delivered = None if logged is None else format_receipt(logged)
        result |= {"delivered": delivered, "is_confirmed": delivered == result["digest"]}
        text += f"\n\n{_verdict(args.log, result)}"
    if args.png:
        result |= {"sheet": args.png}
        text += f"\n\ncontact sheet written to {args.png}"
    print_result(args, result, text)
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


def _as_text(found: BatchExplanation, most: int) -> str:
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
    rows = [
        (s.position, s.rank, s.episode, s.frame, f"{s.seconds:.2f}", s.index, _tasks(s))
        for s in found.samples[:most]
    ]
    hidden = len(found.samples) - len(rows)
    more = f"\n... {hidden:,} more; --most or --json shows them" if hidden else ""
    files = ("file", "samples", "ranges", "bytes")
    return (
        f"{summary}\n\n{terminal_table(header, rows)}{more}\n\n"
        f"{terminal_table(files, _file_rows(found.samples))}"
    )


def _tasks(sample: BatchSample) -> str:
    return ", ".join(sample.tasks) + (" (repeated)" if sample.is_repeated else "")


def _file_rows(samples: Sequence[BatchSample]) -> list[tuple[str, int, int, str]]:
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
