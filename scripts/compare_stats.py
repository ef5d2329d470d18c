# SPDX-License-Identifier: Apache-2.0
"""Compare recomputed statistics with those that LeRobot recorded, for each fixture.

Usage: `python scripts/compare_stats.py [FOLDER ...]`; without folders, the fixtures of the tests.
Differences are the largest of a dataset, as shares of the feature's range. Cameras are sampled as
LeRobot samples them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from robostream.bench.results import Publication, Table

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO)]

COLUMNS = (
    "rows: min, max, mean, std",
    "rows: quantiles",
    "cameras: mean, std",
    "cameras: min, max",
    "cameras: quantiles",
)
MOMENTS = ("min", "max", "mean", "std")


def differences(root: Path) -> Iterator[str]:
    """Yield a number for each column, or a dash where LeRobot records nothing."""
    from robostream.assemble import DatasetLocation, SampleOptions, compute_stats, open_dataset
    from robostream.meta import QUANTILES, LeRobotDatasetMetadata
    from robostream.tools import compare_stats

    dataset = open_dataset(DatasetLocation(str(root)), SampleOptions())
    computed = compute_stats(dataset, images=True)
    meta = LeRobotDatasetMetadata(str(root))
    cameras = set(meta.camera_keys)
    kinds = [(False, MOMENTS), (False, QUANTILES), (True, MOMENTS[2:]), (True, MOMENTS[:2])]
    for is_camera, names in (*kinds, (True, QUANTILES)):
        # The range is that of all frames, whichever statistics are compared.
        chosen = {
            key: {name: entry[name] for name in {"min", "max", *names}}
            for key, entry in computed.items()
            if (key in cameras) == is_camera
        }
        stats = {key: (meta.stats or {}).get(key, {}) for key in chosen}
        recorded = {key: {n: v for n, v in stats[key].items() if n in names} for key in chosen}
        found = [d for one in compare_stats(chosen, recorded) for d in (one.moments, one.quantiles)]
        largest = max((d for d in found if d is not None), default=None)
        yield "-" if largest is None else f"{largest:.1g}"


def make_table(repo: Path) -> str:
    """Return the table of the document."""
    return Table.of(PUBLICATION.read(repo)["rows"]).markdown()


PUBLICATION = Publication(
    "stats.json",
    {Path("docs/inspect.md"): {"stats": make_table}},
    keys={"rows": ["dataset"]},
)


def main() -> None:
    """Measure, and refresh the document."""
    from tests.fixture_datasets import ROOTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    roots = parser.parse_args().folders or ROOTS
    rows = [
        {"dataset": root.name} | dict(zip(COLUMNS, differences(root), strict=True))
        for root in roots
    ]
    PUBLICATION.publish(REPO, {"rows": rows})


if __name__ == "__main__":
    main()
