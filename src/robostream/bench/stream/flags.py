# SPDX-License-Identifier: Apache-2.0
"""The command line of `bench stream`: the flags of LeRobot's script, and a few of our own."""

from __future__ import annotations

import argparse
from pathlib import Path

from robostream import config
from robostream.bench.stream import settings as usual
from robostream.bench.stream.settings import StreamSettings
from robostream.storage import as_location, explicit_root


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all flags; each may be written with "_", as LeRobot does, or with "-"."""
    _add_reference_flags(parser)
    own = parser.add_argument_group("robostream's own")
    _add(own, "revision", help="branch, tag or commit on the Hub")
    _add(own, "frame_cache_bytes", default="auto", help='such as "2GiB" (%(default)s)')
    _add(own, "float32", action="store_true", help="pictures as float32 instead of uint8")
    _add(own, "at_most_s", type=float, default=0.0, help="stop after so many seconds (never)")
    _add(
        own,
        "floor_s",
        type=float,
        default=usual.FLOOR_S,
        help="seconds to decode a local dataset's pictures alone afterwards, in as many processes "
        "as workers; 0 for not (%(default)s)",
    )


def _add_reference_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("as LeRobot's benchmark_streaming.py")
    _add(group, "repo_id", required=True, help="the dataset; with --root only a name")
    _add(group, "root", help="its folder or URL")
    _add(group, "data_files_root", help="where data/ and videos/ lie, if elsewhere")
    _add(group, "mode", choices=usual.MODES, default="single", help="(%(default)s)")
    _add(group, "source", help="a label for where the data lies (local for a folder, else hub)")
    _add(group, "batch_size", type=_count, default=usual.BATCH_SIZE, help="(%(default)s)")
    _add(
        group,
        "num_workers",
        type=_count_or_auto,
        default=usual.NUM_WORKERS,
        help='processes, or "auto" for what the loader chooses (%(default)s)',
    )
    _add(
        group,
        "prefetch_factor",
        type=_count_or_auto,
        default=usual.PREFETCH_FACTOR,
        help='batches built ahead, or "auto" (%(default)s)',
    )
    _add(group, "buffer_size", type=int, help="taken and ignored: there is no buffer of samples")
    _add(group, "max_num_shards", type=int, default=16, help="taken and ignored: no shards")
    _add(group, "video_decoder_cache_size", type=_count, help="video files kept at hand")
    _add(
        group,
        "episode_pool_size",
        type=_count,
        default=config.EPISODE_POOL_SIZE,
        help="episodes mixed at a time (%(default)s)",
    )
    _add(group, "video_decode_device", choices=usual.DECODE_DEVICES, default="cpu", help="(cpu)")
    _add(group, "num_batches", type=_count, default=usual.NUM_BATCHES, help="(%(default)s)")
    _add(group, "warmup_batches", type=_count, default=usual.WARMUP_BATCHES, help="(%(default)s)")
    _add(group, "device", default="auto", help="where batches are moved to (cuda if there is one)")
    _add(group, "out_dir", type=Path, default=usual.OUT_DIR, help="(%(default)s)")


def settings_of(args: argparse.Namespace) -> StreamSettings:
    """Return the settings that the flags ask for."""
    return StreamSettings(
        repo_id=args.repo_id,
        root=args.root,
        data_files_root=args.data_files_root,
        revision=args.revision,
        mode=args.mode,
        source=_source(args) if args.source is None else args.source,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        prefetch_factor=args.prefetch_factor,
        video_decoder_cache_size=args.video_decoder_cache_size,
        episode_pool_size=args.episode_pool_size,
        video_decode_device=args.video_decode_device,
        frame_cache_bytes=args.frame_cache_bytes,
        return_uint8=not args.float32,
        num_batches=args.num_batches,
        warmup_batches=args.warmup_batches,
        at_most_s=args.at_most_s,
        device=args.device,
        floor_s=args.floor_s,
    )


def _source(args: argparse.Namespace) -> str:
    place = args.data_files_root or args.root or explicit_root(args.repo_id)
    return "hub" if place is None or as_location(place).is_remote else "local"


def _add(group: argparse._ArgumentGroup, name: str, **options: object) -> None:
    names = [f"--{name}", *([f"--{name.replace('_', '-')}"] if "_" in name else [])]
    group.add_argument(*names, dest=name, **options)  # type: ignore[arg-type]


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"want 0 or more, got {text}")
    return number


def _count_or_auto(text: str) -> int | None:
    return None if text == "auto" else _count(text)
