# SPDX-License-Identifier: Apache-2.0
"""Measure mixtures: beside one dataset with the same videos, of many datasets, of many segments.

    python scripts/compare_mixture.py [--sources 20] [--rounds 5] [--seconds 12] [--many 500]
    python scripts/compare_mixture.py --shares [--json benchmarks/results/mixture-shares.json]

A stream of one dataset and a mixture of datasets with the same videos take turns, with default
settings; a ratio is the median over rounds of the ratio within a round. Then `--many` datasets of
10 episodes are opened together, and an epoch of a million segments is planned. `--shares` prints
only how much the shares of datasets vary between batches, compared with independent draws, and into
how many segments the order cuts episodes. Nothing of that is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robostream.plan import Mixture

SIZES = (64, 240, 1024)  # of batches
SHARES_HEADER = """\
| datasets | lanes | frames of an episode | pool | global batch of 64 / 240 / 1,024 \
| one of 8 ranks: 64 / 240 / 1,024 | segments per episode |
|---:|---:|---:|---:|---|---|---:|"""


def main() -> None:
    """Measure and print all three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=int, default=20, help="of the mixture")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12.0, help="of one measurement")
    parser.add_argument("--episodes", type=int, default=320)
    parser.add_argument("--distinct", type=int, default=32, help="different ones among them")
    parser.add_argument("--many", type=int, default=500, help="datasets of 10 episodes")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--shares", action="store_true", help="measure only the shares in batches")
    parser.add_argument("--json", type=Path, help="write the shares to this file, too")
    options = parser.parse_args()
    from compare_versions import compare, measure_in_process

    if options.shares:
        rows = list(measure_shares())
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        whole = make_data(Path(folder) / "whole", options.episodes, options.distinct)
        part = make_data(
            Path(folder) / "part-0", options.episodes // options.sources, options.distinct
        )
        parts = copy_data(part, options.sources)
        runs = {
            "one dataset": partial(measure_in_process, __file__, options.seconds, whole),
            "mixture": partial(measure_in_process, __file__, options.seconds, *parts),
        }
        compare(f"mixture of {options.sources}", runs, options.rounds)
        small = make_data(Path(folder) / "small-0", 10, 10)
        measure_many(copy_data(small, options.many), options.seconds)
    measure_plan(options.segments)


def make_data(root: Path, episodes: int, distinct: int) -> Path:
    """Return a new synthetic dataset."""
    from robostream.tools import SynthSpec, make_dataset

    counts = {"episodes": episodes, "distinct": min(distinct, episodes)}
    spec = SynthSpec(min_frames=60, max_frames=100, video_file_mb=0.5, **counts)
    make_dataset(root, spec, jobs=os.cpu_count() or 1)
    return root


def copy_data(root: Path, count: int) -> list[Path]:
    """Return so many datasets with the same files, which take no more space."""
    copies = [root.with_name(f"{root.name}-{number}") for number in range(1, count)]
    for copied in copies:
        shutil.copytree(root, copied, copy_function=os.link)
    return [root, *copies]


def measure_many(roots: list[Path], seconds: float) -> None:
    """Print what a mixture of many small datasets takes."""
    from compare_versions import measure_in_process

    for figure, value in measure_in_process(__file__, seconds, *roots).items():
        print(f"{len(roots)} datasets    {figure:15}{value:12,.2f}")


def measure_plan(count: int) -> None:
    """Print how long the order of an epoch of many segments takes."""
    from robostream.plan import EpochPlan

    content = make_mixture(20, count // 20, 50, 150)
    taken = []
    for epoch in range(3):
        began = time.process_time()
        EpochPlan(content, seed=0, epoch=epoch, lanes=240, pool_size=64)
        taken.append(time.process_time() - began)
    print(f"plan of {count:,} segments: {median(taken):.2f} s of processor time for an epoch")


def measure_shares() -> Iterator[dict[str, Any]]:
    """Print and yield how much shares vary in global batches, and in those of one of 8 ranks."""
    from robostream.plan import EpochPlan
    from robostream.tools import share_variation

    print(SHARES_HEADER)
    for datasets, lanes in ((2, 240), (20, 240), (20, 960)):
        for lengths in ((200, 200), (100, 300)):
            episodes = 20 * lanes
            content = make_mixture(datasets, episodes // datasets, *lengths)
            for pool in (64, 240):
                plan = EpochPlan(content, seed=0, epoch=0, lanes=lanes, pool_size=pool)
                row = {
                    **{"datasets": datasets, "lanes": lanes, "lengths": lengths, "pool": pool},
                    **{"episodes": episodes, "segments": int(plan.line.segments.counts.size)},
                    "global": [share_variation(plan, size) for size in SIZES],
                    "rank": [share_variation(plan, size, step=8) for size in SIZES],
                }
                print(format_shares(row))
                yield row


def format_shares(row: Mapping[str, Any]) -> str:
    """Return a row of the table of docs/mixtures.md."""
    lengths = " to ".join(map(str, dict.fromkeys(row["lengths"])))
    variations = [" / ".join(f"{found:.2f}" for found in row[kind]) for kind in ("global", "rank")]
    pieces = f"{row['segments'] / row['episodes']:.2f}"
    cells = [row["datasets"], row["lanes"], lengths, row["pool"], *variations, pieces]
    return f"| {' | '.join(map(str, cells))} |"


def make_mixture(datasets: int, episodes: int, shortest: int, longest: int) -> Mixture:
    """Return the content of a mixture in which every frame comes once."""
    import numpy as np

    from robostream.plan import Mixture, MixtureSource, Segments, SelectedFrames

    ones, sources = np.ones(episodes, dtype=np.int64), []
    for number in range(datasets):
        lengths = np.random.default_rng(number).integers(shortest, longest, episodes, endpoint=True)
        own = number * episodes + np.arange(episodes)
        frames = SelectedFrames(Segments(own, 0 * ones, lengths, ones))
        sources.append(MixtureSource(frames, frames.num_frames, label=number))
    return Mixture(tuple(sources), np.arange(datasets) * episodes)


def measure(seconds: float, roots: list[str]) -> dict[str, float]:
    """Return the figures of a stream of one dataset, or of a mixture of several."""
    from compare_versions import cpu_s, process_tree

    from robostream import (
        LeRobotDatasetMetadata,
        MixtureDataset,
        StreamingDataLoader,
        StreamingLeRobotDataset,
    )
    from robostream.bench import consume, limit_time
    from robostream.bench.processes import sample_memory

    with sample_memory() as memory:
        opened = time.perf_counter()
        stream: StreamingLeRobotDataset | MixtureDataset
        if len(roots) == 1:
            stream = StreamingLeRobotDataset("compare", root=roots[0], return_uint8=True)
        else:
            stream = MixtureDataset(roots, return_uint8=True)
        loader = StreamingDataLoader(stream, 32)
        open_s, cpu_began_s = time.perf_counter() - opened, cpu_s()
        batches = limit_time(chain.from_iterable(repeat(loader)), seconds, from_first_batch=False)
        times = consume(batches, warmup_batches=0)
        meta = LeRobotDatasetMetadata("compare", root=roots[0])
        images = times.num_measured * len(meta.camera_keys)
        figures = {
            "images/s": images / times.end_s,
            "CPU us": (cpu_s() - cpu_began_s) / images * 1e6,
            "open s": open_s,
            "first batch s": times.arrivals_s[0],
            "open files": max(map(count_files, process_tree())),
        }
    return figures | {"memory GB": memory.figures()["peak_pss_gb"]}


def count_files(process: int) -> int:
    """Return how many files a process holds open."""
    try:
        return len(os.listdir(f"/proc/{process}/fd"))
    except OSError:
        return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(float(sys.argv[2]), sys.argv[3:])))
        sys.stdout.flush()
        os._exit(0)  # workers need not be waited for
    main()
