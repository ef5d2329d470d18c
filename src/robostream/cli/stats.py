# SPDX-License-Identifier: Apache-2.0
"""`robostream stats`: recompute statistics from rows, compare them with the recorded ones."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from robostream.assemble import DatasetLocation, SampleOptions, compute_stats, open_dataset
from robostream.cli.arguments import add_dataset, add_episodes, add_json, add_option, terminal_table
from robostream.meta import (
    DEFAULT_FEATURES,
    Features,
    LeRobotDatasetMetadata,
    Stats,
    as_lists,
    dimension_names,
)
from robostream.tools import StatsDifference, compare_stats, find_stats_file, write_stats

EXAMPLES = """\
  robostream stats ./my-dataset                all numbers, exact quantiles; decodes nothing
  robostream stats lerobot/pusht --episodes 0:100 --features action observation.state
  robostream stats ./my-dataset --images --write ./my-dataset   replaces its meta/stats.json
  robostream stats ./my-dataset --episodes 0:80 --write train.json
"""
_SHOWN = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
# Rounding of float32 sums; more is another set of frames.
_ROUNDING = 1e-4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream stats`."""
    add = partial(add_option, parser)
    add_dataset(parser)
    add_episodes(parser)
    features_help = "only these features (all)"
    add("--features", str, None, features_help, nargs="+", metavar="KEY")
    images_help = "decode cameras too, the frames that LeRobot samples; takes much longer"
    parser.add_argument("--images", action="store_true", help=images_help)
    write_help = (
        "write the statistics: a .json file, or the folder of a dataset, whose meta/stats.json is "
        "replaced"
    )
    parser.add_argument("--write", type=Path, metavar="DEST", help=write_help)
    add_json(parser, "all statistics, as in stats.json,")


def run(args: argparse.Namespace) -> int:
    """Print the statistics, and write them if requested."""
    path = find_stats_file(args.write) if args.write else None
    location = DatasetLocation(args.dataset, revision=args.revision)
    dataset = open_dataset(location, SampleOptions(episodes=args.episodes))
    stats = compute_stats(dataset, images=args.images, keys=args.features, progress=True)
    # Statistics of an opened dataset have another unit of depth than the recorded ones.
    meta = LeRobotDatasetMetadata(args.dataset, revision=args.revision)
    if args.json:
        print(json.dumps({key: as_lists(entry) for key, entry in stats.items()}, indent=2))
    else:
        print(stats_table(stats, meta.features))
        frames, episodes = dataset.selection.num_frames, len(dataset.selection.episodes)
        print(f"\n{frames:,} frames of {episodes:,} of {meta.total_episodes:,} episodes")
        if episodes == meta.total_episodes:
            numbers = {k: stats[k] for k in _shown(stats) if k not in meta.camera_keys}
            print(_describe(compare_stats(numbers, meta.stats or {}), meta.info.stats_path))
    if path is not None:
        write_stats(path, stats, meta.stats or {}, meta.features)
        kept = [key for key in meta.stats or {} if key not in stats]
        more = f"; {', '.join(kept)} as recorded" if kept else ""
        print(f"written to {path}{more}", file=sys.stderr if args.json else sys.stdout)
    return 0


def _shown(stats: Stats) -> list[str]:
    """Return the features of the table: those of every dataset only if there are no others."""
    return [key for key in stats if key not in DEFAULT_FEATURES] or list(stats)


def stats_table(stats: Stats, features: Features) -> str:
    """Return a table that fits the terminal, with a row for each dimension."""
    rows: list[Sequence[object]] = []
    for key in _shown(stats):
        values = np.stack([stats[key][name].ravel() for name in _SHOWN], axis=1)
        names = dimension_names(features[key], len(values))
        rows += [
            (f"{key} {n}".strip(), *map(float, row)) for n, row in zip(names, values, strict=True)
        ]
    return terminal_table(("feature", *_SHOWN), rows)


def _describe(differences: Sequence[StatsDifference], file: str) -> str:
    """Return how the recorded statistics of numbers compare, in one or a few lines."""
    lacking = [found.feature for found in differences if found.moments is None]
    lines = [f"{file} lacks {', '.join(lacking)}"] if lacking else []
    if found := _largest({d.feature: d.moments for d in differences}):
        verdict = "agree with" if found[1] <= _ROUNDING else "DIFFER from"
        most = f"{found[1]:.2g} of the range ({found[0]})"
        lines.append(f"min, max, mean and std {verdict} {file}: by at most {most}")
    if found := _largest({d.feature: d.quantiles for d in differences}):
        most = f"{found[1]:.2g} of the range ({found[0]})"
        why = "LeRobot records bounds over episodes, these are exact"
        lines.append(f"quantiles differ by at most {most}: {why}")
    return "\n".join(lines)


def _largest(differences: dict[str, float | None]) -> tuple[str, float] | None:
    known = [(feature, value) for feature, value in differences.items() if value is not None]
    return max(known, key=lambda pair: pair[1], default=None)
