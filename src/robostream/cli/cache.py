# SPDX-License-Identifier: Apache-2.0
"""`robostream cache`: what the cache of remote bytes has, and emptying it."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from robostream import config
from robostream.bench import format_table
from robostream.config import format_bytes
from robostream.storage import Cache, CacheInfo, cache_limit, is_cache

EXAMPLES = """\
  robostream cache info                         the cache of this machine
  robostream cache info --cache-dir /nvme/cache --json
  robostream cache clear                        runs that use it go on, and fetch again
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream cache`."""
    parser.add_argument("action", choices=["info", "clear"], help="show what it has, or delete it")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        default=config.cache_home(),
        metavar="FOLDER",
        help="the cache's folder (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Show or clear a cache. Without one there is nothing to do, and none is made."""
    if not is_cache(args.cache_dir):
        print(json.dumps(None) if args.json else f"{args.cache_dir}: no cache there")
        return 0
    cache = Cache(args.cache_dir, cache_limit(args.cache_dir, None))
    if args.action == "clear":
        freed = cache.clear()
        print(json.dumps({"freed_bytes": freed}) if args.json else f"{format_bytes(freed)} freed")
    else:
        info = cache.info()
        print(_as_json(info) if args.json else _as_text(info))
    return 0


def _as_json(info: CacheInfo) -> str:
    return json.dumps(dataclasses.asdict(info), indent=2, default=str)


def _as_text(info: CacheInfo) -> str:
    summary = format_table(
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
    return f"{summary}\n\n{format_table(('file', 'kept', 'of'), rows)}" if rows else summary
