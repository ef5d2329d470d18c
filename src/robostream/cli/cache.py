# SPDX-License-Identifier: Apache-2.0
"""`robostream cache`: show, fill or clear the cache of remote bytes."""

from __future__ import annotations

import argparse
from pathlib import Path

from robostream import config
from robostream.assemble import (
    DatasetLocation,
    SampleOptions,
    choose_cache,
    open_dataset,
)
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.cli.arguments import add_dataset, add_json, add_option, print_result, terminal_table
from robostream.progress import Progress
from robostream.storage import (
    TRAFFIC,
    Cache,
    CacheInfo,
    CacheWarmer,
    FileOpener,
    cache_limit,
    is_cache,
)

EXAMPLES = """\
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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream cache`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, purpose in _ACTIONS.items():
        action = actions.add_parser(name, help=purpose, description=f"{purpose.capitalize()}.")
        if name == "warm":
            add_dataset(action)
            limit_help = (
                "the most to keep, such as 200GB (ROBOSTREAM_CACHE_LIMIT, or half of the free disk)"
            )
            add_option(action, "--cache-limit", _size, None, limit_help, metavar="SIZE")
        home = config.cache_home()
        add_option(action, "--cache-dir", Path, home, "the cache's folder", metavar="FOLDER")
        add_json(action, "everything")


def _size(text: str) -> int:
    """Return a number of bytes, for argparse."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    """Show, fill or clear a cache."""
    if args.action == "warm":
        return _warm(args)
    # Do not create a cache that does not exist.
    if not is_cache(args.cache_dir):
        empty = CacheInfo(args.cache_dir, cache_limit(args.cache_dir, None), 0, (), 0)
        nothing = {"freed_bytes": 0} if args.action == "clear" else empty
        print_result(args, nothing, f"{args.cache_dir}: no cache there")
        return 0
    cache = Cache(args.cache_dir, cache_limit(args.cache_dir, None))
    if args.action == "clear":
        freed = cache.clear()
        print_result(args, {"freed_bytes": freed}, f"{format_bytes(freed)} freed")
    else:
        info = cache.info()
        print_result(args, info, _as_text(info))
    return 0


def _warm(args: argparse.Namespace) -> int:
    cache = choose_cache(args.cache_dir, args.cache_limit)
    location = DatasetLocation(args.dataset, revision=args.revision, cache=cache)
    dataset = open_dataset(location, SampleOptions())
    if not dataset.files.is_remote:
        print_result(args, None, f"{dataset.files.url}: already on this disk")
        return 0
    opener = dataset.file_opener()
    files = dataset.selected_files(videos=True)
    warming = CacheWarmer(opener, files, requests=config.WARM_REQUESTS)
    fitting = sum(piece.stop - piece.start for piece in warming.pieces)
    try:
        with Progress("cache warm", fitting, "B") as progress:
            warming.run(progress.update)
    finally:
        # Also after an interrupt: fetched bytes stay in the cache.
        found = _warmed(opener, warming, fitting)
        print_result(args, found, _warmed_text(found, dataset.files.url))
    return 0


def _warmed(opener: FileOpener, warming: CacheWarmer, fitting: int) -> dict[str, int]:
    counts = dict(zip(TRAFFIC, opener.traffic.take(), strict=True))
    return {
        "files": len(warming.sizes),
        "size_bytes": sum(warming.sizes.values()),
        "fitting_bytes": fitting,
        "fetched_bytes": int(counts["bytes_fetched"]),
        "requests": int(counts["requests"]),
        "kept_bytes": warming.kept_bytes(),
    }


def _warmed_text(found: dict[str, int], url: str) -> str:
    size, kept, fetched = (
        format_bytes(found[name]) for name in ("size_bytes", "kept_bytes", "fetched_bytes")
    )
    lines = [f"{url}: {kept} of {size} in {found['files']:,} files are in the cache"]
    lines += [f"{fetched} were fetched now, with {found['requests']:,} requests"]
    if found["fitting_bytes"] < found["size_bytes"]:
        left = format_bytes(found["size_bytes"] - found["fitting_bytes"])
        lines += [f"{left} do not fit the cache's limit or the disk: a run fetches them itself"]
    return "\n".join(lines)


def _as_text(info: CacheInfo) -> str:
    summary = terminal_table(
        ("what", "value"),
        [
            ("folder", str(info.folder)),
            ("in use", format_bytes(info.used_bytes)),
            ("limit if none is given", format_bytes(info.limit_bytes)),
            ("remote files", f"{len(info.files):,}"),
            ("files of decoded rows", f"{info.whole_files:,}"),
        ],
    )
    rows = [
        (file.name, format_bytes(file.kept_bytes), format_bytes(file.size_bytes))
        for file in info.files
    ]
    return f"{summary}\n\n{terminal_table(('file', 'kept', 'of'), rows)}" if rows else summary
