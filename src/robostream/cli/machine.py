# SPDX-License-Identifier: Apache-2.0
"""This machine: `robostream cache` and `env`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robostream import assemble, config, storage
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.cli import arguments as cli
from robostream.progress import Progress

_CACHE_EXAMPLES = """\
  robostream cache info                         the cache of this machine
  robostream cache info --cache-dir /nvme/cache --json
  robostream cache warm lerobot/pusht           fetch a dataset before the first run needs it
  robostream cache clear                        running jobs continue, and fetch again
"""
_ACTIONS = {
    "info": "show the contents of the cache",
    "warm": "fetch a dataset into the cache; repeat the command to resume an interrupted one",
    "clear": "delete the contents of the cache",
}


def _configure_cache(parser: argparse.ArgumentParser) -> None:
    for name, action in cli.add_actions(parser, _ACTIONS).items():
        if name == "warm":
            cli.add_dataset(action)
            default = "(ROBOSTREAM_CACHE_LIMIT, or half of the free disk)"
            limit_help = f"the most to keep, such as 200GB {default}"
            cli.add_option(action, "--cache-limit", _size, None, limit_help, metavar="SIZE")
        home = config.cache_home()
        cli.add_option(action, "--cache-dir", Path, home, "the cache's folder", metavar="FOLDER")
        cli.add_json(action, "everything")


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run_cache(args: argparse.Namespace) -> int:
    if args.action == "warm":
        return _warm(args)
    limit = storage.cache_limit(args.cache_dir, None)
    # Do not create a cache that does not exist.
    if not storage.is_cache(args.cache_dir):
        empty = storage.CacheInfo(args.cache_dir, limit, 0, (), 0)
        nothing = {"freed_bytes": 0} if args.action == "clear" else empty
        cli.print_result(args, nothing, f"{args.cache_dir}: no cache there")
        return 0
    cache = storage.Cache(args.cache_dir, limit)
    if args.action == "clear":
        freed = cache.clear()
        cli.print_result(args, {"freed_bytes": freed}, f"{format_bytes(freed)} freed")
    else:
        info = cache.info()
        cli.print_result(args, info, _cache_text(info))
    return 0


def _warm(args: argparse.Namespace) -> int:
    cache = assemble.choose_cache(args.cache_dir, args.cache_limit)
    location = assemble.DatasetLocation(args.dataset, revision=args.revision, cache=cache)
    dataset = assemble.open_dataset(location, assemble.SampleOptions())
    if not dataset.files.is_remote:
        cli.print_result(args, None, f"{dataset.files.url}: already on this disk")
        return 0
    opener = dataset.file_opener()
    files = dataset.selected_files(videos=True)
    warming = storage.CacheWarmer(opener, files, requests=config.WARM_REQUESTS)
    fitting = sum(piece.stop - piece.start for piece in warming.pieces)
    try:
        with Progress("cache warm", fitting, "B") as progress:
            warming.run(progress.update)
    finally:
        # Also after an interrupt: fetched bytes stay in the cache.
        counts = dict(zip(storage.TRAFFIC, opener.traffic.take(), strict=True))
        found = {
            "files": len(warming.sizes),
            "size_bytes": sum(warming.sizes.values()),
            "fitting_bytes": fitting,
            "fetched_bytes": int(counts["bytes_fetched"]),
            "requests": int(counts["requests"]),
            "kept_bytes": warming.kept_bytes(),
        }
        cli.print_result(args, found, _warmed_text(found, dataset.files.url))
    return 0


def _warmed_text(found: dict[str, int], url: str) -> str:
    names = ("size_bytes", "kept_bytes", "fetched_bytes")
    size, kept, fetched = (format_bytes(found[name]) for name in names)
    lines = [f"{url}: {kept} of {size} in {found['files']:,} files are in the cache"]
    lines += [f"{fetched} were fetched now, with {found['requests']:,} requests"]
    if found["fitting_bytes"] < found["size_bytes"]:
        left = format_bytes(found["size_bytes"] - found["fitting_bytes"])
        lines += [f"{left} do not fit the cache's limit or the disk: a run fetches them itself"]
    return "\n".join(lines)


def _cache_text(info: storage.CacheInfo) -> str:
    totals = [
        ("folder", str(info.folder)),
        ("in use", format_bytes(info.used_bytes)),
        ("limit if none is given", format_bytes(info.limit_bytes)),
        ("remote files", f"{len(info.files):,}"),
        ("files of decoded rows", f"{info.whole_files:,}"),
    ]
    summary = cli.terminal_table(("what", "value"), totals)
    rows = [(f.name, format_bytes(f.kept_bytes), format_bytes(f.size_bytes)) for f in info.files]
    return f"{summary}\n\n{cli.terminal_table(('file', 'kept', 'of'), rows)}" if rows else summary


_ENV_EXAMPLES = """\
  robostream env            paste what it prints into an issue report
  robostream env --json
"""
_SETTINGS = re.compile(
    r"(ROBOSTREAM|HF|LEROBOT|AWS|SLURM|OMP|CUDA|NCCL)_\w+|RANK|WORLD_SIZE|LOCAL_RANK"
)
# The values of these variables may be printed: numbers, folders and switches.
_HARMLESS = re.compile(
    r"ROBOSTREAM_\w+|(HF|HF_HUB|HF_LEROBOT|LEROBOT)_(HOME|CACHE|OFFLINE)|OMP_\w+|CUDA_VISIBLE_DEVICES"
    r"|SLURM_(NTASKS|NNODES|PROCID|STEP_NUM_TASKS|CPUS_PER_TASK)|RANK|WORLD_SIZE|LOCAL_RANK"
)


def _configure_env(parser: argparse.ArgumentParser) -> None:
    cli.add_json(parser, "everything")


def _run_env(args: argparse.Namespace) -> int:
    found = describe_environment(os.environ)
    lines = [f"{name:<20} {_flatten(value)}" for name, value in found.items()]
    cli.print_result(args, found, "\n".join(lines))
    return 0


def describe_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what decides how robostream behaves here; holds no credentials."""
    # Not for `robostream cache`: these import torch, and all tools.
    from robostream.loader import share_of_cores, usable_memory
    from robostream.tools import check_gpu, describe_software

    gpu = check_gpu()
    home = config.cache_home()
    existing = next(path for path in (home, *home.parents) if path.exists())
    return {
        **describe_software(),
        "cores": share_of_cores(1),
        "memory": f"{format_bytes(usable_memory())} available",
        "gpus": list(gpu.cards),
        "nvidia driver": gpu.driver or "none",
        "gpu decoding": gpu.obstacle or "no known obstacle",
        "cache": f"{home}, {format_bytes(shutil.disk_usage(existing).free)} free",
        "variables": {
            name: value if _HARMLESS.fullmatch(name) else "set"
            for name, value in sorted(variables.items())
            if _SETTINGS.fullmatch(name)
        },
    }


def _flatten(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{key}={entry}" for key, entry in value.items()]
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)


SUBCOMMANDS = {
    "cache": cli.Command(_CACHE_EXAMPLES, _configure_cache, _run_cache),
    "env": cli.Command(_ENV_EXAMPLES, _configure_env, _run_env),
}
