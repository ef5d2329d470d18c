# SPDX-License-Identifier: Apache-2.0
"""Benchmark cases: a synthetic dataset, the samples taken from it, and the loader's settings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robostream import config
from robostream.meta import LeRobotDatasetMetadata

if TYPE_CHECKING:
    from robostream.tools import SynthSpec

SINGLE = (0.0,)
SARM_S = tuple(float(step) for step in range(8))
PAST_S = tuple(-0.4 * step for step in range(7, -1, -1))


@dataclass(frozen=True, slots=True)
class BenchData:
    """A synthetic dataset, created once and reused."""

    name: str  # the prefix of its folder
    spec: SynthSpec
    title: str = ""  # its name in tables
    variant: Callable[[Path], Path] | None = None  # makes another dataset of it

    def open(self) -> Path:
        """Return the folder; create it if it does not exist.

        It lies in `$ROBOSTREAM_CACHE/bench`, named after a digest of its contents, and may be
        deleted at any time.
        """
        contents = dataclasses.asdict(self.spec)
        if self.spec.distinct is None:  # older datasets were named before this field existed
            del contents["distinct"]
        digest = hashlib.sha256(json.dumps(contents, sort_keys=True, default=str).encode())
        folder = config.bench_home() / f"{self.name}-{digest.hexdigest()[:12]}"
        root = create_once(folder, self._make)
        return root if self.variant is None else self.variant(root)

    def files(self, pattern: str = "videos/**/*.mp4") -> list[str]:
        """Return the paths of its files that match a pattern."""
        return sorted(map(str, self.open().glob(pattern)))

    def _make(self, folder: Path) -> None:
        from robostream.loader import share_of_cores  # imports torch
        from robostream.tools import make_dataset

        make_dataset(folder, self.spec, jobs=share_of_cores(1))


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One row of a benchmark: the batches to load, and how."""

    name: str  # in tables and file names
    data: BenchData
    batch_size: int = 32
    window_s: tuple[float, ...] = SINGLE  # the frames of a sample, relative to its own
    workers: int | None = None  # None for the loader's default
    # Settings of robostream's dataset that differ from the defaults, and the same in words.
    options: Mapping[str, Any] = field(default_factory=dict)
    setting: str = "nothing"
    loader: str = "robostream"  # how batches are loaded, where a benchmark knows several ways
    goal: float | None = None  # images/s over the floor's
    is_floor_random: bool = False  # the floor decodes in random order: nothing else is possible

    @property
    def mode(self) -> str:
        """The kind of samples: "single" (one frame) or "sarm" (a window of several)."""
        return "single" if len(self.window_s) == 1 else "sarm"

    @property
    def cameras(self) -> list[str]:
        """The keys of the dataset's cameras."""
        return LeRobotDatasetMetadata("bench/case", root=self.data.open()).camera_keys

    @property
    def images_per_sample(self) -> int:
        """The images of a sample, over all cameras."""
        return len(self.cameras) * len(self.window_s)

    def windows(self) -> dict[str, list[float]] | None:
        """Return the windows as `delta_timestamps`; None for single frames."""
        if self.mode == "single":
            return None
        return {key: list(self.window_s) for key in self.cameras}


def one_row_group(root: Path) -> Path:
    """Return a dataset with the same videos whose Parquet files have one row group each."""
    folder = root.with_name(f"{root.name}-one-row-group")
    return create_once(folder, partial(merge_row_groups, root))


def merge_row_groups(root: Path, folder: Path) -> None:
    """Copy a dataset, with one row group per Parquet file.

    Tools that rewrite a whole data file leave it like that.
    """
    import pyarrow.parquet as pq

    shutil.copytree(root, folder, copy_function=os.link)
    for path in folder.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        path.unlink()  # a hard link: writing to it would change the other dataset
        pq.write_table(table, path, row_group_size=table.num_rows)


def create_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return a folder; if it does not exist, `make` makes it under another name first."""
    if not folder.is_dir():
        temp = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(temp, ignore_errors=True)
        temp.parent.mkdir(parents=True, exist_ok=True)
        print(f"creating {folder.name}; later runs reuse it", flush=True)
        make(temp)
        temp.rename(folder)
    return folder
