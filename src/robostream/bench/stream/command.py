# SPDX-License-Identifier: Apache-2.0
"""`robostream bench stream`, also `benchmarks/streaming/benchmark_streaming.py`."""

from __future__ import annotations

import argparse

from robostream.bench.results import ensure_writable, keep_run
from robostream.bench.stream.flags import add_flags, settings_of
from robostream.bench.stream.text import as_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Measure one setting and keep its figures."""
    from robostream.bench.stream.measure import measure_stream  # brings torch along

    ensure_writable(args.out_dir)
    result = measure_stream(settings_of(args))
    path = keep_run(args.out_dir, result.name, result.figures)
    print(as_text(result.figures))
    print(f"kept in {path}", flush=True)
    return 0
