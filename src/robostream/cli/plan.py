# SPDX-License-Identifier: Apache-2.0
"""`robostream plan`: estimate what a run needs before it starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import (
    add_dataset,
    add_json,
    add_option,
    add_plan_arguments,
    open_plan,
    positive,
    print_result,
    terminal_table,
)
from robostream.plan import CameraFrames, Cut, EpochPlan
from robostream.tools import (
    BatchMixing,
    DatasetSizes,
    RankNeeds,
    RunSteps,
    estimate_mixing,
    estimate_rank,
    estimate_steps,
    list_video_cameras,
    measure_dataset,
)

EXAMPLES = """\
  robostream plan lerobot/pusht --batch-size 64 --world-size 8
  robostream plan ./my-dataset --pool-size 256 --samples-per-second 400
  robostream plan ./my-dataset --diversity 0.95 --gop 250 --json
"""
_Row = tuple[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream plan`."""
    add_dataset(parser)
    add_json(parser, "all figures")
    add_plan_arguments(parser)
    add = partial(add_option, parser.add_argument_group("run"))
    add("--epochs", positive, 1, "number of epochs")
    add("--samples-per-second", positive, 200, "samples that a rank consumes per second")
    diversity_help = "wanted distinct episodes per global batch, as a share of a uniform shuffle's"
    add("--diversity", _share, 0.9, diversity_help)
    gop_help = (
        f"frames from one key frame to the next (what info.json records, else {config.VIDEO_GOP})"
    )
    add("--gop", positive, None, gop_help, metavar="N")


def run(args: argparse.Namespace) -> int:
    """Print what the run needs."""
    meta, plan, cut = open_plan(args)
    sizes = measure_dataset(meta)
    steps = estimate_steps(plan, cut, epochs=args.epochs, samples_per_s=args.samples_per_second)
    mixing = estimate_mixing(plan, cut, wanted=args.diversity)
    cameras = list_video_cameras(meta, args.gop)
    rank = estimate_rank(plan, cut, sizes, cameras, epoch_s=steps.epoch_s)
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
        *_mixing_rows(plan, mixing),
        *_rank_rows(cut, rank, args.samples_per_second),
        ("RAM per rank to decode once", _frame_memory(rank, cameras)),
        ("RAM per rank for rows", format_bytes(rank.row_cache_bytes)),
        ("disk per rank for open episodes", format_bytes(rank.disk_cache_bytes)),
        ("disk per node to fetch everything once", _total(sizes)),
    ]
    print_result(args, figures, terminal_table(("what", "how much"), rows))
    return 0


def _run_rows(plan: EpochPlan, cut: Cut, sizes: DatasetSizes, steps: RunSteps) -> Sequence[_Row]:
    files = f"{sizes.num_data_files:,} Parquet, {sizes.num_video_files:,} MP4"
    tail = f"{steps.repeated_frames:,} frames repeated to complete it"
    if cut.drop_last:
        tail = f"{steps.dropped_frames:,} frames dropped by --drop-last"
    ranks = f"{cut.world_size:,} rank{'s' * (cut.world_size > 1)}"
    return [
        ("dataset", f"{plan.num_episodes:,} episodes, {plan.num_frames:,} frames"),
        ("files", f"{_total(sizes)} in {files}"),
        ("global batch", f"{cut.step_size:,} ({ranks} x {cut.batch_size})"),
        ("steps per epoch", f"{steps.per_epoch:,}"),
        ("steps in all", f"{steps.total:,}"),
        ("an epoch takes", f"{steps.epoch_s:,.0f} s"),
        ("tail of an epoch", tail),
    ]


def _mixing_rows(plan: EpochPlan, mixing: BatchMixing) -> Sequence[_Row]:
    share = mixing.simulated / mixing.uniform
    return [
        ("order", f"{plan.lanes} lanes, each mixed over {mixing.window_frames:,} frames"),
        ("episodes per global batch", f"{mixing.expected:.1f} expected"),
        ("", f"{mixing.simulated:.1f} simulated ({share:.0%} of uniform: {mixing.uniform:.1f})"),
        ("episodes per rank's batch", f"{mixing.per_rank:.1f} simulated"),
        (f"smallest pool for {mixing.wanted:.0%}", f"{mixing.smallest_pool:,} episodes"),
    ]


def _rank_rows(cut: Cut, rank: RankNeeds, samples_per_s: int) -> Sequence[_Row]:
    lanes = f"{rank.lanes}"
    if rank.readers > 1:
        lanes += f", shared by {rank.readers} ranks; let the world size divide the lanes"
    episodes = f"{rank.open_episodes:.0f} on average, {rank.open_episodes_most} at most"
    epoch = f"{format_bytes(rank.bytes_per_epoch)}, {rank.requests_per_epoch:,} requests"
    second = f"{format_bytes(rank.bytes_per_s)}, {rank.requests_per_s:.1f} requests"
    return [
        ("lanes per rank", lanes),
        ("open episodes per rank", episodes),
        ("a rank reads per epoch", epoch),
        (f"per second, at {samples_per_s} samples/s", second),
        ("all ranks together per second", format_bytes(cut.world_size * rank.bytes_per_s)),
    ]


def _frame_memory(rank: RankNeeds, cameras: Sequence[CameraFrames]) -> str:
    nbytes = format_bytes(rank.frame_cache_bytes)
    gop = max((camera.gop_frames for camera in cameras), default=None)
    return nbytes if gop is None else f"{nbytes} with a key frame every {gop} frames"


def _total(sizes: DatasetSizes) -> str:
    bound = "" if sizes.measured else "at most "
    return f"{bound}{format_bytes(sizes.data_bytes + sizes.video_bytes)}"


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"want a share above 0 and at most 1, got {text}")
    return value
