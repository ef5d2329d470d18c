# SPDX-License-Identifier: Apache-2.0
"""`robostream shuffle`: measure how well an order is shuffled, beside other methods."""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from pathlib import Path

from robostream import config
from robostream.cli.arguments import (
    DATASET_HELP,
    add_json,
    add_option,
    add_revision,
    natural,
    positive,
    print_result,
    terminal_table,
)
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import default_lanes
from robostream.progress import track
from robostream.tools import made_up_lengths, measure_methods, plot_qualities

EXAMPLES = """\
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream shuffle`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("dataset", nargs="?", metavar="DATASET", help=DATASET_HELP)
    what.add_argument("--episodes", type=positive, help="invent this many episodes instead")
    add = partial(add_option, parser)
    add("--mean-length", positive, 150, "mean length of invented episodes")
    add_revision(parser)
    add("--batch-size", positive, 64, "samples per global batch")
    add("--lanes", positive, None, "number of lanes (chosen by the loader from episodes)")
    sizes_help = "episodes mixed at a time (16 64 256)"
    add("--pool-sizes", positive, [16, 64, 256], sizes_help, nargs="+", metavar="N")
    add("--seed", natural, config.SEED, "seed of the shuffle")
    add("--plot", _image_path, None, "draw a plot (.svg, .png, .pdf)", metavar="FILE")
    add_json(parser, "all figures")


def run(args: argparse.Namespace) -> int:
    """Print the table, and draw the plot if requested."""
    if args.dataset:
        meta = LeRobotDatasetMetadata(args.dataset, revision=args.revision)
        meta.ensure_readable()
        lengths = meta.episodes["length"]
    else:
        lengths = made_up_lengths(args.episodes, args.mean_length, seed=args.seed)
    measured = measure_methods(
        lengths,
        batch_size=args.batch_size,
        lanes=args.lanes or default_lanes(len(lengths), 1, shuffle=True),
        pool_sizes=args.pool_sizes,
        seed=args.seed,
    )
    qualities = list(track(measured, "shuffle", 3 * len(args.pool_sizes) + 1, "orders"))
    rows = [dataclasses.asdict(quality) for quality in qualities]
    table = terminal_table(list(rows[0]), [list(row.values()) for row in rows])
    print_result(args, rows, f"{table}\n\n{_LEGEND}")
    if args.plot:
        plot_qualities(qualities, args.batch_size, args.plot)
    return 0


def _image_path(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"want a name that ends in .svg, .png or .pdf, got {text}")
    return path
