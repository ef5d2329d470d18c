# SPDX-License-Identifier: Apache-2.0
"""Compare the speed of source trees, which take turns on one dataset with default settings.

    git worktree add --detach BEFORE COMMIT
    python scripts/compare_versions.py BEFORE/src src [--rounds 5] [--seconds 12]

Each measurement runs in a process of its own that imports robostream from one tree and uses public
names only, so trees of different ages can be compared. The first tree is the reference. A ratio is
the median over rounds of the ratio within a round.

    images/s     images delivered per second, from the call of `iter` on
    CPU us       processor time of all processes per image delivered
    first batch  seconds from `iter` to the first batch
    memory       the highest sum of private and shared memory of all processes (PSS), in MiB
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

CASES = ("single", "sarm", "single g=250", "in process", "map-style in order", "map-style random")
Figures = dict[str, float]
WINDOW_S = [-0.4 * step for step in range(7, -1, -1)]


def main() -> None:
    """Measure the trees in turns and print a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "trees",
        nargs="+",
        help="folders that hold a robostream package, joined by : to those that it needs",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12.0, help="of one measurement")
    parser.add_argument("--episodes", type=int, default=320, help="of the dataset")
    parser.add_argument("--distinct", type=int, default=32, help="different ones among them")
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--data", help="folder to keep the datasets in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            root = make_data(Path(options.data or folder), case, options)
            arguments = __file__, case, root, options.seconds
            runs = {
                tree: partial(measure_in_process, *arguments, tree=tree) for tree in options.trees
            }
            compare(case, runs, options.rounds)


def make_data(folder: Path, case: str, options: argparse.Namespace) -> Path:
    """Return the dataset of a case; the first call makes it, with this repository's sources."""
    is_long = case == "single g=250"
    root = folder / ("h264" if is_long else "av1")
    if not root.exists():
        from robostream.tools import SynthSpec, make_dataset

        codec: dict[str, Any] = {"codec": "h264", "gop": 250, "crf": 23} if is_long else {}
        counts = {"episodes": options.episodes, "distinct": options.distinct}
        spec = SynthSpec(min_frames=60, max_frames=100, video_file_mb=0.5, **counts, **codec)
        make_dataset(root, spec, jobs=os.cpu_count() or 1)
    return root


def compare(title: str, runs: Mapping[str, Callable[[], Figures]], rounds: int) -> None:
    """Make all runs in turns; print the medians of each figure and their ratios to the first."""
    found: dict[str, list[Figures]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in runs if number % 2 == 0 else reversed(runs):
            found[name].append(runs[name]())
    reference = next(iter(found.values()))
    for figure in reference[0]:
        line = f"{title:20}{figure:15}"
        for results in found.values():
            pairs = zip(results, reference, strict=True)
            ratio = median(own[figure] / first[figure] for own, first in pairs)
            line += f"{median(run[figure] for run in results):12,.2f} ({ratio:.3f})"
        print(line, flush=True)


def measure_in_process(script: str, *arguments: object, tree: str | None = None) -> Figures:
    """Return what a script prints with `--measure`; it may import robostream from another tree."""
    paths = [str(Path(part).resolve()) for part in (tree or "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, script, "--measure", *map(str, arguments)],
        env=os.environ | ({"PYTHONPATH": os.pathsep.join(paths)} if tree else {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(case: str, root: str, seconds: float) -> Figures:
    """Return the figures of a case, measured in this process."""
    sizes = [process_tree_mib()]
    threading.Thread(target=sample_memory, args=(sizes,), daemon=True).start()
    counts = deliveries(case, root)
    next(counts)  # everything is imported and open
    began, cpu_began = time.perf_counter(), cpu_s()
    images, first_batch_s = 0, 0.0
    for count in counts:
        images += count
        first_batch_s = first_batch_s or time.perf_counter() - began
        if time.perf_counter() - began > seconds:
            break
    taken_s = time.perf_counter() - began
    return {
        "images/s": images / taken_s,
        "CPU us": (cpu_s() - cpu_began) / images * 1e6,
        "first batch s": first_batch_s,
        "memory MiB": max([*sizes, process_tree_mib()]),
    }


def deliveries(case: str, root: str) -> Iterator[int]:
    """Yield 0 when all is open, then the number of images of each delivery."""
    from robostream import LeRobotDataset, StreamingDataLoader, StreamingLeRobotDataset

    name = "compare_versions"
    if case.startswith("map-style"):
        dataset = LeRobotDataset(name, root=root, return_uint8=True)
        cameras = dataset.meta.camera_keys
        draw = random.Random(0)
        yield 0
        for number in range(10**9):
            place = number if case.endswith("order") else draw.randrange(len(dataset))
            yield len([dataset[place % len(dataset)][key] for key in cameras])
        return
    window = case == "sarm"
    deltas = None
    if window:
        cameras = LeRobotDataset(name, root=root).meta.camera_keys
        deltas = dict.fromkeys(cameras, WINDOW_S)
    stream = StreamingLeRobotDataset(name, root=root, return_uint8=True, delta_timestamps=deltas)
    workers = 0 if case == "in process" else None
    loader = StreamingDataLoader(stream, 16 if window else 32, num_workers=workers)
    per_sample = len(stream.meta.camera_keys) * (len(WINDOW_S) if window else 1)
    yield 0
    while True:
        for batch in loader:
            yield len(batch["index"]) * per_sample


def process_tree() -> list[int]:
    """Return this process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = folder.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [os.getpid()]
    for process in found:
        found.extend(parents.get(process, []))
    return found


def process_tree_mib() -> float:
    """Return the memory of the process tree; shared pages count once."""
    total = 0
    for process in process_tree():
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def sample_memory(sizes: list[float]) -> None:
    """Append the memory of the process tree twice a second."""
    while True:
        time.sleep(0.5)
        sizes.append(process_tree_mib())


def cpu_s() -> float:
    """Return the processor time that the process tree has used."""
    ticks = 0
    for process in process_tree():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3], float(sys.argv[4]))))
        sys.stdout.flush()
        os._exit(0)  # workers need not be waited for
    main()
