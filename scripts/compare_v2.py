# SPDX-License-Identifier: Apache-2.0
"""Compare v2.x datasets with LeRobot's reading of them and with their conversions; print a table.

    PYTHONPATH=src python scripts/compare_v2.py [--fixtures FOLDER] [PYTHON ...]

FOLDER has datasets v21_* with `expected/`, what LeRobot 0.3.3 read from them. Each PYTHON has a
LeRobot: 0.3.3 reads the datasets, and v2.0 copies of them, again; 0.4.4 and 0.6.1 read robostream's
conversion and make one of their own. Each row compares two readings; the exit code is 1 if a
receipt, or a value that is no pixel, differs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robostream import LeRobotDataset, StreamingDataLoader, StreamingLeRobotDataset
from robostream.bench.results import format_table
from robostream.tools import convert_dataset

READ = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

dataset = LeRobotDataset("some/name", root=sys.argv[1])
items = {}
for number in range(len(dataset)):
    items |= {f"plain|{number}|{key}": np.asarray(value) for key, value in dataset[number].items()}
np.savez(sys.argv[2], **items)
"""
CONVERT = """
import importlib, sys
root = sys.argv[1]
try:
    module = importlib.import_module("lerobot.datasets.v30.convert_dataset_v21_to_v30")
except ImportError:
    module = importlib.import_module("lerobot.scripts.convert_dataset_v21_to_v30")
    root += "/some/name"  # 0.6 takes the dataset's own folder
module.convert_dataset("some/name", root=root, push_to_hub=False)
"""
VERSION = "import importlib.metadata; print(importlib.metadata.version('lerobot'))"
Items = Mapping[str, Any]


def items_of(root: Path, names: Iterator[str] | None = None) -> dict[str, Any]:
    """Return robostream's values by "<plain|window>|<item>|<key>": those named, or all plain."""
    spec = json.loads((root / "expected/spec.json").read_text()) if names else {}
    deltas = {"plain": None, "window": spec.get("delta_timestamps")}
    opened = {
        kind: LeRobotDataset("some/name", root, delta_timestamps=given, return_uint8=True)
        for kind, given in deltas.items()
    }
    wanted = names or (f"plain|{number}|" for number in range(len(opened["plain"])))
    found = {}
    for kind, number in dict.fromkeys(tuple(name.split("|")[:2]) for name in wanted):
        item = opened[kind][int(number)]
        found |= {f"{kind}|{number}|{key}": np.asarray(value) for key, value in item.items()}
    return found


def compare(found: Items, wanted: Items) -> tuple[str, str, str]:
    """Return the number of values, of unequal ones but pixels, and the worst pixel of 255."""
    unequal, worst = len(found.keys() ^ wanted.keys()), 0
    for name in found.keys() & wanted.keys():
        one, other = np.asarray(found[name]), np.asarray(wanted[name])
        if "images" in name and not name.endswith("_is_pad"):
            levels = [v if v.dtype == np.uint8 else np.rint(v * 255) for v in (one, other)]
            worst = max(worst, int(np.abs(levels[0].astype(int) - levels[1].astype(int)).max()))
        else:
            unequal += not np.array_equal(one, other)
    return str(len(wanted)), str(unequal), str(worst)


def receipts_of(root: Path) -> list[Any]:
    """Return the states after each batch of a shuffled epoch, without the fingerprint."""
    stream = StreamingLeRobotDataset("some/name", root, camera_keys=[], seed=7)
    loader = StreamingDataLoader(stream, 8)
    states = [loader.state_dict() for _ in loader]
    return [{k: v for k, v in state.items() if k != "fingerprint"} for state in states]


def compare_expected(root: Path) -> tuple[str, ...]:
    """Compare robostream's reading with that of LeRobot 0.3.3."""
    spec = json.loads((root / "expected/spec.json").read_text())
    with np.load(root / "expected/items.npz") as stored:
        wanted = dict(stored) | {name: np.asarray(text) for name, text in spec["strings"].items()}
    found = items_of(root, iter(wanted))
    return ("robostream", "LeRobot 0.3.3", *compare(found, wanted), "")


def as_v20(root: Path, folder: Path) -> Path:
    """Return a v2.0 copy: statistics of the whole dataset, in stats.json."""
    copy = Path(shutil.copytree(root, folder / f"v20_{root.name}"))
    stats = LeRobotDataset("some/name", copy).meta.stats or {}
    lists = {key: {n: v.tolist() for n, v in entry.items()} for key, entry in stats.items()}
    (copy / "meta/stats.json").write_text(json.dumps(lists))
    (copy / "meta/episodes_stats.jsonl").unlink()
    info = json.loads((copy / "meta/info.json").read_text())
    (copy / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.0"}))
    return copy


def compare_copies(root: Path, pythons: list[str], folder: Path) -> Iterator[tuple[str, ...]]:
    """Compare a dataset with its conversions, by robostream and by each LeRobot."""
    ours, items, receipts = folder / f"{root.name}_v30", items_of(root), receipts_of(root)
    convert_dataset(root, ours)
    same = "equal" if receipts_of(ours) == receipts else "DIFFER"
    yield ("robostream", "its conversion", *compare(items_of(ours), items), same)
    for number, python in enumerate(pythons):
        version = run(python, VERSION)
        if version.startswith("0.3"):
            continue
        read = read_by(python, ours, folder)
        yield (f"LeRobot {version}", "its conversion", *compare(read, items), "")
        theirs = folder / f"lerobot_{root.name}_{number}" / "some/name"
        shutil.copytree(root, theirs)
        run(python, CONVERT, theirs.parent.parent)
        same = "equal" if receipts_of(theirs) == receipts else "DIFFER"
        row = compare(items_of(theirs), items)
        yield ("robostream", f"conversion by LeRobot {version}", *row, same)


def compare_live(root: Path, pythons: list[str], folder: Path) -> Iterator[tuple[str, ...]]:
    """Compare robostream's reading of all items with that of each LeRobot that reads v2.x."""
    for python in pythons:
        version = run(python, VERSION)
        if version.startswith("0.3"):
            found = compare(items_of(root), read_by(python, root, folder))
            yield ("robostream", f"LeRobot {version}, all items", *found, "")


def read_by(python: str, root: Path, folder: Path) -> Items:
    """Return all items of a dataset as the LeRobot of another Python reads them."""
    run(python, READ, root, folder / "read.npz")
    with np.load(folder / "read.npz") as read:
        return dict(read)


def run(python: str, program: str, *words: Path) -> str:
    """Return the last line that a program printed with another Python."""
    done = subprocess.run(
        [python, "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return (done.stdout.strip().splitlines() or [""])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    fixtures = Path(__file__).parents[1] / "tests/fixtures"
    parser.add_argument("--fixtures", type=Path, default=fixtures)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for root in sorted(args.fixtures.glob("v21_*")):
            if not (root / "expected").is_dir():
                continue
            old = as_v20(root, Path(name))
            for each in (root, old):
                rows.append((each.name, *compare_expected(each)))
                rows += [(each.name, *row) for row in compare_live(each, args.pythons, Path(name))]
            rows += [(root.name, *row) for row in compare_copies(root, args.pythons, Path(name))]
    titles = ("dataset", "read by", "compared with", "values", "unequal", "worst pixel", "receipts")
    print(format_table(list(titles), [list(row) for row in rows]))
    return int(any(row[4] != "0" or row[6] == "DIFFER" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
