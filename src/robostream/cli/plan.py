# SPDX-License-Identifier: Apache-2.0
"""What a run needs before it starts: `robostream plan`, and `mix` for mixtures of datasets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robostream import config, tools
from robostream.byte_sizes import format_bytes
from robostream.cli import arguments as cli
from robostream.cli.contents import stats_table
from robostream.meta import LeRobotDatasetMetadata, as_lists
from robostream.plan import CameraFrames, Cut, EpochPlan, default_lanes

if TYPE_CHECKING:
    from robostream.loader import MixtureDataset

_PLAN_EXAMPLES = """\
  robostream plan lerobot/pusht --batch-size 64 --world-size 8
  robostream plan ./my-dataset --pool-size 256 --samples-per-second 400
  robostream plan ./my-dataset --diversity 0.95 --gop 250 --json
"""
_Row = tuple[str, str]


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that determine the order and cut it into batches."""
    batches = parser.add_argument_group("batches")
    cli.add_option(batches, "--batch-size", cli.positive, 64, "samples per rank and step")
    cli.add_option(batches, "--world-size", cli.positive, 1, "number of ranks")
    cli.add_flag(batches, "--drop-last", "drop a tail that does not fill a global batch")
    order = parser.add_argument_group("order")
    cli.add_option(order, "--seed", cli.natural, config.SEED, "seed of the shuffle")
    cli.add_option(order, "--epoch", cli.natural, 0, "the first epoch")
    lanes_help = "number of lanes (chosen by the loader from episodes and ranks)"
    cli.add_option(order, "--lanes", cli.positive, None, lanes_help)
    pool_help = "episodes mixed at a time, over all ranks"
    cli.add_option(order, "--pool-size", cli.positive, config.EPISODE_POOL_SIZE, pool_help)
    cli.add_flag(order, "--no-shuffle", "read in dataset order, one contiguous share per rank")


def open_plan(args: argparse.Namespace) -> tuple[LeRobotDatasetMetadata, EpochPlan, Cut]:
    """Return the metadata, the plan and the first rank's cut that the arguments describe."""
    meta = LeRobotDatasetMetadata(args.dataset, revision=args.revision)
    meta.ensure_readable()
    lengths = meta.episodes["length"]
    shuffle = not args.no_shuffle
    plan = EpochPlan(
        lengths,
        seed=args.seed,
        epoch=args.epoch,
        lanes=args.lanes or default_lanes(len(lengths), args.world_size, shuffle=shuffle),
        pool_size=args.pool_size,
        shuffle=shuffle,
    )
    return meta, plan, Cut(0, args.world_size, args.batch_size, drop_last=args.drop_last)


def _configure_plan(parser: argparse.ArgumentParser) -> None:
    cli.add_dataset(parser)
    cli.add_json(parser, "all figures")
    add_plan_arguments(parser)
    add = partial(cli.add_option, parser.add_argument_group("run"))
    add("--epochs", cli.positive, 1, "number of epochs")
    add("--samples-per-second", cli.positive, 200, "samples that a rank consumes per second")
    diversity_help = "wanted distinct episodes per global batch, as a share of a uniform shuffle's"
    add("--diversity", cli.share, 0.9, diversity_help)
    recorded = f"(what info.json records, else {config.VIDEO_GOP})"
    gop_help = f"frames from one key frame to the next {recorded}"
    add("--gop", cli.positive, None, gop_help, metavar="N")


def _run_plan(args: argparse.Namespace) -> int:
    meta, plan, cut = open_plan(args)
    sizes = tools.measure_dataset(meta)
    rate = args.samples_per_second
    steps = tools.estimate_steps(plan, cut, epochs=args.epochs, samples_per_s=rate)
    mixing = tools.estimate_mixing(plan, cut, wanted=args.diversity)
    cameras = tools.list_video_cameras(meta, args.gop)
    rank = tools.estimate_rank(plan, cut, sizes, cameras, epoch_s=steps.epoch_s)
    share = mixing.simulated / mixing.uniform
    figures = {
        "episodes": plan.num_episodes,
        "frames": plan.num_frames,
        "lanes": plan.lanes,
        "dataset": sizes,
        "steps": steps,
        "mixing": mixing,
        "rank": rank,
    }
    rows = [
        *_run_rows(plan, cut, sizes, steps),
        ("order", f"{plan.lanes} lanes, each mixed over {mixing.window_frames:,} frames"),
        ("episodes per global batch", f"{mixing.expected:.1f} expected"),
        ("", f"{mixing.simulated:.1f} simulated ({share:.0%} of uniform: {mixing.uniform:.1f})"),
        ("episodes per rank's batch", f"{mixing.per_rank:.1f} simulated"),
        (f"smallest pool for {mixing.wanted:.0%}", f"{mixing.smallest_pool:,} episodes"),
        *_rank_rows(cut, rank, rate, cameras),
        ("disk per node to fetch everything once", _total(sizes)),
    ]
    cli.print_result(args, figures, cli.terminal_table(("what", "how much"), rows))
    return 0


def _run_rows(
    plan: EpochPlan, cut: Cut, sizes: tools.DatasetSizes, steps: tools.RunSteps
) -> list[_Row]:
    tail = f"{steps.repeated_frames:,} frames repeated to complete it"
    if cut.drop_last:
        tail = f"{steps.dropped_frames:,} frames dropped by --drop-last"
    ranks = f"{cut.world_size:,} rank{'s' * (cut.world_size > 1)}"
    files = f"{sizes.num_data_files:,} Parquet, {sizes.num_video_files:,} MP4"
    return [
        ("dataset", f"{plan.num_episodes:,} episodes, {plan.num_frames:,} frames"),
        ("files", f"{_total(sizes)} in {files}"),
        ("global batch", f"{cut.step_size:,} ({ranks} x {cut.batch_size})"),
        ("steps per epoch", f"{steps.per_epoch:,}"),
        ("steps in all", f"{steps.total:,}"),
        ("an epoch takes", f"{steps.epoch_s:,.0f} s"),
        ("tail of an epoch", tail),
    ]


def _rank_rows(
    cut: Cut, rank: tools.RankNeeds, samples_per_s: int, cameras: Sequence[CameraFrames]
) -> list[_Row]:
    lanes = f"{rank.lanes}"
    if rank.readers > 1:
        lanes += f", shared by {rank.readers} ranks; let the world size divide the lanes"
    episodes = f"{rank.open_episodes:.0f} on average, {rank.open_episodes_most} at most"
    epoch = f"{format_bytes(rank.bytes_per_epoch)}, {rank.requests_per_epoch:,} requests"
    second = f"{format_bytes(rank.bytes_per_s)}, {rank.requests_per_s:.1f} requests"
    frames = format_bytes(rank.frame_cache_bytes)
    if cameras:
        frames += f" with a key frame every {max(one.gop_frames for one in cameras)} frames"
    return [
        ("lanes per rank", lanes),
        ("open episodes per rank", episodes),
        ("a rank reads per epoch", epoch),
        (f"per second, at {samples_per_s} samples/s", second),
        ("all ranks together per second", format_bytes(cut.world_size * rank.bytes_per_s)),
        ("RAM per rank to decode once", frames),
        ("RAM per rank for rows", format_bytes(rank.row_cache_bytes)),
        ("disk per rank for open episodes", format_bytes(rank.disk_cache_bytes)),
    ]


def _total(sizes: tools.DatasetSizes) -> str:
    bound = "" if sizes.measured else "at most "
    return f"{bound}{format_bytes(sizes.data_bytes + sizes.video_bytes)}"


_MIX_EXAMPLES = """\
  robostream mix plan mix.yaml --batch-size 64 --world-size 8
  robostream mix stats mix.yaml
  robostream mix import mixtures.py --list kitchen --root ./datasets > mix.yaml
  robostream mix import groot.yaml --times-frames
"""
_MIX_ACTIONS = {
    "plan": "show a mixture's shares, memory and shuffle; reads only metadata",
    "stats": "recompute the statistics of each group from the rows of its datasets, exactly",
    "import": "convert another project's list of datasets, weights and robots to a mixture",
}


def _configure_mix(parser: argparse.ArgumentParser) -> None:
    actions = cli.add_actions(parser, _MIX_ACTIONS)
    planner, statistics, importer = actions["plan"], actions["stats"], actions["import"]
    planner.add_argument("file", metavar="FILE", help="the mixture, in YAML")
    cli.add_option(planner, "--batch-size", cli.positive, 64, "samples per rank and step")
    cli.add_option(planner, "--world-size", cli.positive, 1, "number of ranks")
    cli.add_json(planner, "all figures")
    statistics.add_argument("file", metavar="FILE", help="the mixture, in YAML")
    cli.add_json(statistics, "the statistics by group")
    importer.add_argument("file", metavar="LIST", type=Path, help="YAML, JSON or Python file")
    importer.add_argument("--list", dest="name", help="the name of the list, if there are several")
    importer.add_argument("--root", type=Path, help="the folder that holds the datasets")
    times_help = "weights multiply the datasets' frames, as with balance_dataset_weights in GR00T"
    cli.add_flag(importer, "--times-frames", times_help)


def _run_mix(args: argparse.Namespace) -> int:
    run = {"plan": _plan_mixture, "stats": _mixture_stats, "import": _import_mixture}
    return run[args.action](args)


def _open_mixture(file: str, world_size: int) -> MixtureDataset:
    from robostream.loader import MixtureDataset  # imports torch, which plans do not need

    return MixtureDataset.from_file(file, rank=0, world_size=world_size)


def _plan_mixture(args: argparse.Namespace) -> int:
    mixture = _open_mixture(args.file, args.world_size)
    shares, metas = mixture.shares, mixture.metas
    episode_bytes = sum(
        share.share * tools.row_bytes(meta) * meta.total_frames / meta.total_episodes
        for share, meta in zip(shares, metas, strict=True)
    )
    figures = tools.measure_mixture(
        mixture.plan(0),
        Cut(0, args.world_size, args.batch_size, drop_last=False),
        tools.list_mixture_cameras(mixture.schema, mixture.maps, metas),
        episode_bytes,
    )
    rows = [
        (s.name, s.group, f"{s.frames:,}", f"{s.samples:,}", f"{s.share:.2%}", f"{s.laps:.2f}")
        for s in shares
    ]
    distinct = figures.distinct / figures.uniform
    needs = [
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
    header = ("dataset", "group", "frames", "samples", "share", "laps")
    tables = cli.terminal_table(header, rows), cli.terminal_table(("what", "how much"), needs)
    parts = [tables[0], mixture.schema.describe(), tables[1]]
    cli.print_result(args, {"sources": shares, "epoch": figures}, "\n\n".join(parts))
    return 0


def _mixture_stats(args: argparse.Namespace) -> int:
    mixture = _open_mixture(args.file, 1)
    groups, features = mixture.exact_stats(), mixture.schema.features
    tables = [f"{group}\n{stats_table(stats, features)}" for group, stats in groups.items()]
    found = {g: {key: as_lists(e) for key, e in stats.items()} for g, stats in groups.items()}
    cli.print_result(args, found, "\n\n".join(tables))
    return 0


def _import_mixture(args: argparse.Namespace) -> int:
    listed = tools.read_list(args.file, args.name)
    roots = [None if args.root is None else args.root / one.dataset for one in listed]
    frames = [1] * len(listed)
    if args.times_frames or len({one.entry for one in listed}) < len(listed):
        pairs = zip(listed, roots, strict=True)
        frames = [LeRobotDatasetMetadata(one.dataset, root).total_frames for one, root in pairs]
    shares = tools.convert_weights(listed, frames, times_frames=args.times_frames)
    print(f"# {args.file.name}{f', {args.name}' if args.name else ''}: share of samples")
    sources = []
    for one, root, share in zip(listed, roots, shares, strict=True):
        print(f"# {share:7.2%}  {one.dataset}")
        place = {} if root is None else {"root": str(root.absolute())}
        group = {} if one.robot is None else {"group": one.robot}
        sources.append({"repo_id": one.dataset, **place, "weight": round(share, 12), **group})
    print(tools.format_mixture(sources), end="")
    return 0


SUBCOMMANDS = {
    "plan": cli.Command(_PLAN_EXAMPLES, _configure_plan, _run_plan),
    "mix": cli.Command(_MIX_EXAMPLES, _configure_mix, _run_mix),
}
