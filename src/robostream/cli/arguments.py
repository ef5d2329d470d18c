# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share, and the plan that they describe."""

from __future__ import annotations

import argparse

from robostream import config
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import Cut, EpochPlan, default_lanes

DATASET_HELP = "a local folder, a Hub name such as lerobot/pusht, or an fsspec URL"


def positive(text: str) -> int:
    """Return a whole number above 0, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"want a whole number above 0, got {text}")
    return int(text)


def natural(text: str) -> int:
    """Return a whole number of 0 or more, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"want a whole number of 0 or more, got {text}")
    return int(text)


def add_order_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that determine the order."""
    add = parser.add_argument_group("order").add_argument
    add("--revision", help="branch, tag or commit on the Hub")
    add("--seed", type=natural, default=config.SEED, help="(%(default)s)")
    add("--epoch", type=natural, default=0, help="the first epoch (%(default)s)")
    add("--lanes", type=positive, help="(the loader's choice, from episodes and ranks)")
    add(
        "--pool-size",
        type=positive,
        default=config.EPISODE_POOL_SIZE,
        help="episodes mixed at a time, over all ranks (%(default)s)",
    )
    add("--no-shuffle", action="store_true", help="dataset order, one contiguous share per rank")


def add_cut_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that cut the order into batches."""
    add = parser.add_argument_group("batches").add_argument
    add("--batch-size", type=positive, default=64, help="samples per rank and step (%(default)s)")
    add("--world-size", type=positive, default=1, help="ranks (%(default)s)")
    add("--drop-last", action="store_true", help="drop a tail that does not fill a global batch")


def load_meta(dataset: str, revision: str | None) -> LeRobotDatasetMetadata:
    """Return the metadata of a DATASET argument."""
    return LeRobotDatasetMetadata(dataset, revision=revision)


def make_plan(args: argparse.Namespace, meta: LeRobotDatasetMetadata) -> EpochPlan:
    """Return the plan that the arguments describe."""
    meta.ensure_readable()
    lengths = meta.episodes["length"]
    lanes = default_lanes(len(lengths), args.world_size, shuffle=not args.no_shuffle)
    return EpochPlan(
        lengths,
        seed=args.seed,
        epoch=args.epoch,
        lanes=args.lanes or lanes,
        pool_size=args.pool_size,
        shuffle=not args.no_shuffle,
    )


def make_cut(args: argparse.Namespace) -> Cut:
    """Return the first rank's cut that the arguments describe."""
    return Cut(
        rank=0,
        world_size=args.world_size,
        batch_size=args.batch_size,
        drop_last=args.drop_last,
    )
