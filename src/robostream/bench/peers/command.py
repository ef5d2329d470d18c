# SPDX-License-Identifier: Apache-2.0
"""`robostream bench peers`, also `make bench-peers`."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from robostream.bench.results import ensure_writable, write_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--rounds", type=int, default=3, help="of each row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run (%(default)s)")
    parser.add_argument("--workers", type=int, help="processes of each (the cores)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these contestants")
    parser.add_argument("--events", nargs="+", default=[], metavar="NAME", help="av1-single, ...")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder for the JSON (%(default)s)"
    )
    parser.add_argument("--repo", type=Path, help="a checkout whose docs are to be refreshed")


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, keep the JSON, and refresh a checkout if one is given."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are local
    from robostream.bench.peers.contest import hold_contest
    from robostream.bench.peers.table import contest_text, refresh_docs
    from robostream.loader import share_of_cores

    ensure_writable(args.out)
    began = time.perf_counter()
    workers = args.workers or share_of_cores(1)
    figures = hold_contest(
        args.only, args.events, workers, rounds=args.rounds, seconds=args.seconds
    )
    figures["seconds"] = time.perf_counter() - began
    write_json(args.out / "peers.json", figures)
    print(contest_text(figures))
    print(f"kept in {args.out / 'peers.json'}; {figures['seconds']:.0f} s in all")
    if args.repo is not None:
        refresh_docs(args.repo, figures)
    return 0
