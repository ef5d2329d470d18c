# SPDX-License-Identifier: Apache-2.0
"""Comparing a dataset with a copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from robostream.dataset import LeRobotDataset


def assert_same_items(root: Path, copy: Path, *, at_least_db: float) -> None:
    """Check that all items of a copy have the original rows and depth, and similar images."""
    was, made = (LeRobotDataset("some/name", root=folder) for folder in (root, copy))
    colour = set(was.meta.video_keys) - set(was.meta.depth_keys)

    assert len(made) == len(was) > 0
    for number in range(len(was)):
        want, found = was[number], made[number]
        assert want.keys() == found.keys()
        for key in want.keys() - colour:
            assert np.array_equal(want[key], found[key]), (number, key)
        for key in colour:
            assert psnr_db(want[key], found[key]) >= at_least_db, (number, key)


def psnr_db(want: Any, found: Any) -> float:
    """Return the PSNR of images whose values are 0 to 1."""
    return float(-10 * np.log10(max(np.mean((np.asarray(want) - np.asarray(found)) ** 2), 1e-9)))


def contents_of(root: Path, below: str) -> dict[str, bytes]:
    """Return every file below a folder of a dataset."""
    files = (path for path in sorted((root / below).rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}
