# SPDX-License-Identifier: Apache-2.0
"""What a run needs before it starts: `robostream plan`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from robostream import config, tools
from robostream.byte_sizes import format_bytes
from robostream.cli import arguments as cli
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import CameraFrames, Cut, EpochPlan, default_lanes

EXAMPLES = """\
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream plan`."""
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


def run(args: argparse.Namespace) -> int:
    """Print what the run needs."""
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
