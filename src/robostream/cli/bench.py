# SPDX-License-Identifier: Apache-2.0
"""`robostream bench`: measure one part, print a table, keep the JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from robostream.bench import CASES, load_case

EXAMPLES = """\
  robostream bench all             every benchmark at its usual size
  robostream bench all --quick     smaller, for a first look
  robostream bench loader --workers 1 2 4 8 16 --only single sarm
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream bench`."""
    parser.add_argument("case", choices=[*CASES, "all"], help="what to measure")
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repeats")
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="loader: worker processes, one run for each number (the cores)",
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CASE", help="loader: these rows only"
    )
    parser.add_argument("--rounds", type=int, help="loader: how often each row is measured")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder for the JSON (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the chosen cases one after the other."""
    args.out.mkdir(parents=True, exist_ok=True)
    for case in CASES if args.case == "all" else (args.case,):
        module = load_case(case)
        print(f"\n== {module.TITLE}", flush=True)
        options: dict[str, Any] = {}
        if case == "loader":
            options = {"workers": args.workers, "only": args.only, "rounds": args.rounds}
        result = module.run(quick=args.quick, **options)
        path = args.out / f"{case}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"kept in {path}", flush=True)
    return 0
