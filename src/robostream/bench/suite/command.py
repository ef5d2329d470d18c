# SPDX-License-Identifier: Apache-2.0
"""`robostream bench suite`, also `make bench`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from robostream import config
from robostream.bench.environment import machine
from robostream.bench.report.command import write_report
from robostream.bench.results import Figures, ensure_writable, write_json
from robostream.bench.suite.cases import CASES
from robostream.bench.suite.readme import refresh, suite_text
from robostream.bench.suite.rounds import case_figures, public, run_first_minute, run_rounds
from robostream.bench.suite.shapes import SHAPES

# Measured at their small sizes, one after the other, once.
_OTHERS = ("meta", "plan", "shuffle", "node", "decode", "remote")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--rounds", type=int, default=3, help="of each row (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder of all runs (%(default)s)"
    )
    parser.add_argument(
        "--repo",
        type=Path,
        help="a checkout whose README, picture and benchmarks/results are to be refreshed",
    )


def run(args: argparse.Namespace) -> int:
    """Measure everything, keep it, and refresh a checkout if one is given."""
    ensure_writable(args.out)
    figures = measure(args.out, args.rounds)
    write_json(args.out / "suite.json", figures)
    write_report(args.out / "suite", title="make bench")
    print(suite_text(figures))
    print(f"kept in {args.out}; {figures['seconds']:.0f} s in all")
    if args.repo is not None:
        refresh(args.repo, figures)
    return 0


def measure(out: Path, rounds: int) -> Figures:
    """Return the figures of the whole suite."""
    from robostream.bench import load_case

    config.quiet_encoders()
    roots = {name: shape.open() for name, shape in SHAPES.items()}
    began = time.perf_counter()
    streamed = run_rounds(CASES, roots, rounds=rounds, out=out / "suite")
    minute = run_first_minute(roots, out / "first-minute")
    others = {}
    for name in _OTHERS:
        print(f"\n== {name}", flush=True)
        others[name] = load_case(name).run(quick=True)
    return {
        "machine": machine(),
        "rounds": rounds,
        "seconds": time.perf_counter() - began,
        "cases": [case_figures(case, runs) for case, runs in streamed.items()],
        "first_minute": public(minute),
        **others,
    }
