# SPDX-License-Identifier: Apache-2.0
"""`robostream mix`: mixtures of datasets."""

from __future__ import annotations

import argparse
from pathlib import Path

from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import add_json, add_option, positive, print_result, terminal_table
from robostream.cli.stats import stats_table
from robostream.loader import MixtureDataset
from robostream.meta import LeRobotDatasetMetadata, as_lists
from robostream.plan import Cut
from robostream.tools import (
    ListedDataset,
    MixtureFigures,
    convert_weights,
    format_mixture,
    list_mixture_cameras,
    measure_mixture,
    read_list,
    row_bytes,
)

EXAMPLES = """\
  robostream mix plan mix.yaml --batch-size 64 --world-size 8
  robostream mix stats mix.yaml
  robostream mix import mixtures.py --list kitchen --root ./datasets > mix.yaml
  robostream mix import groot.yaml --times-frames
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream mix`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    purpose = "show a mixture's shares, memory and shuffle; reads only metadata"
    planner = actions.add_parser("plan", help=purpose, description=f"{purpose.capitalize()}.")
    planner.add_argument("file", metavar="FILE", help="the mixture, in YAML")
    add_option(planner, "--batch-size", positive, 64, "samples per rank and step")
    add_option(planner, "--world-size", positive, 1, "number of ranks")
    add_json(planner, "all figures")
    purpose = "recompute the statistics of each group from the rows of its datasets, exactly"
    statistics = actions.add_parser("stats", help=purpose, description=f"{purpose.capitalize()}.")
    statistics.add_argument("file", metavar="FILE", help="the mixture, in YAML")
    add_json(statistics, "the statistics by group")
    purpose = "convert another project's list of datasets, weights and robots to a mixture"
    importer = actions.add_parser("import", help=purpose, description=f"{purpose.capitalize()}.")
    importer.add_argument("file", metavar="LIST", type=Path, help="YAML, JSON or Python file")
    importer.add_argument("--list", dest="name", help="the name of the list, if there are several")
    importer.add_argument("--root", type=Path, help="the folder that holds the datasets")
    times_help = "weights multiply the datasets' frames, as with balance_dataset_weights in GR00T"
    importer.add_argument("--times-frames", action="store_true", help=times_help)


def run(args: argparse.Namespace) -> int:
    """Run `robostream mix`."""
    actions = {"plan": _plan, "stats": _stats, "import": _import}
    return actions[args.action](args)


def _plan(args: argparse.Namespace) -> int:
    mixture = MixtureDataset.from_file(args.file, rank=0, world_size=args.world_size)
    shares, metas = mixture.shares, mixture.metas
    episode_bytes = sum(
        share.share * row_bytes(meta) * meta.total_frames / meta.total_episodes
        for share, meta in zip(shares, metas, strict=True)
    )
    figures = measure_mixture(
        mixture.plan(0),
        Cut(0, args.world_size, args.batch_size, drop_last=False),
        list_mixture_cameras(mixture.schema, mixture.maps, metas),
        episode_bytes,
    )
    rows = [
        (s.name, s.group, f"{s.frames:,}", f"{s.samples:,}", f"{s.share:.2%}", f"{s.laps:.2f}")
        for s in shares
    ]
    header = ("dataset", "group", "frames", "samples", "share", "laps")
    parts = [
        terminal_table(header, rows),
        mixture.schema.describe(),
        terminal_table(("what", "how much"), _figure_rows(figures)),
    ]
    print_result(args, {"sources": shares, "epoch": figures}, "\n\n".join(parts))
    return 0


def _figure_rows(figures: MixtureFigures) -> list[tuple[str, str]]:
    distinct = figures.distinct / figures.uniform
    return [
        ("samples per epoch", f"{figures.samples:,}"),
        ("steps per epoch", f"{figures.steps:,}"),
        ("lanes", f"{figures.lanes}"),
        ("episodes per global batch", f"{figures.distinct:.1f} ({distinct:.0%} of uniform)"),
        ("variation of shares, global batch", f"{figures.variation:.2f} of independent draws"),
        ("variation of shares, rank's batch", f"{figures.rank_variation:.2f}"),
        ("open episodes per rank", f"at most {figures.open_episodes}"),
        ("RAM per rank to decode once", format_bytes(figures.frame_cache_bytes)),
        ("RAM per rank for rows", format_bytes(figures.row_cache_bytes)),
    ]


def _stats(args: argparse.Namespace) -> int:
    mixture = MixtureDataset.from_file(args.file, rank=0, world_size=1)
    groups, features = mixture.exact_stats(), mixture.schema.features
    tables = [f"{group}\n{stats_table(stats, features)}" for group, stats in groups.items()]
    found = {
        group: {key: as_lists(entry) for key, entry in stats.items()}
        for group, stats in groups.items()
    }
    print_result(args, found, "\n\n".join(tables))
    return 0


def _import(args: argparse.Namespace) -> int:
    listed = read_list(args.file, args.name)
    has_shared = len({one.entry for one in listed}) < len(listed)
    frames = [1] * len(listed)
    if args.times_frames or has_shared:
        frames = [_open(one, args.root).total_frames for one in listed]
    shares = convert_weights(listed, frames, times_frames=args.times_frames)
    sources = [
        {
            "repo_id": one.dataset,
            **({} if args.root is None else {"root": str(args.root.absolute() / one.dataset)}),
            "weight": round(share, 12),
            **({} if one.robot is None else {"group": one.robot}),
        }
        for one, share in zip(listed, shares, strict=True)
    ]
    print(f"# {args.file.name}{f', {args.name}' if args.name else ''}: share of samples")
    for one, share in zip(listed, shares, strict=True):
        print(f"# {share:7.2%}  {one.dataset}")
    print(format_mixture(sources), end="")
    return 0


def _open(one: ListedDataset, root: Path | None) -> LeRobotDatasetMetadata:
    return LeRobotDatasetMetadata(one.dataset, None if root is None else root / one.dataset)
