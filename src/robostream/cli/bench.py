# SPDX-License-Identifier: Apache-2.0
"""`robostream bench`: measure one part, print a table, keep the JSON."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

EXAMPLES = """\
  robostream bench all             every benchmark at its usual size
  robostream bench all --quick     smaller, for a first look
"""
# Each is a module of robostream.bench with TITLE and run(quick: bool) -> JSON-able dict; it prints
# its own table.
CASES: tuple[str, ...] = ("meta", "plan", "shuffle", "decode", "loader")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream bench`."""
    parser.add_argument("case", choices=[*CASES, "all"], help="what to measure")
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repeats")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder for the JSON (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the chosen cases one after the other."""
    args.out.mkdir(parents=True, exist_ok=True)
    for case in CASES if args.case == "all" else (args.case,):
        module = importlib.import_module(f"robostream.bench.{case}")
        print(f"\n== {module.TITLE}", flush=True)
        result = module.run(quick=args.quick)
        path = args.out / f"{case}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"kept in {path}", flush=True)
    return 0
