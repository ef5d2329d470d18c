# SPDX-License-Identifier: Apache-2.0
"""LeRobot itself opens a conversion and reads the values of its source."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from robostream import LeRobotDataset
from robostream.tools import convert_dataset
from tests.fixture_datasets import FIXTURES, V2_NAMES
from tests.servers.required import lacking

PYTHONS = list(filter(None, os.environ.get("LEROBOT_PYTHON", "").split(os.pathsep)))
PROGRAM = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

dataset = LeRobotDataset("some/name", root=sys.argv[1], video_backend="pyav")
items = {f"{n}|{k}": np.asarray(v) for n in range(len(dataset)) for k, v in dataset[n].items()}
np.savez(sys.argv[2], **items)
"""


@pytest.mark.long
@pytest.mark.parametrize("python", PYTHONS or [None])
@pytest.mark.parametrize("name", V2_NAMES)
def test_lerobot_reads_the_values_of_the_source(
    name: str, python: str | None, tmp_path: Path
) -> None:
    """Rows exactly; cameras within one level of 255, the rounding of another conversion to RGB."""
    if python is None:
        lacking("LEROBOT", "LEROBOT_PYTHON names no Python with LeRobot")
    convert_dataset(FIXTURES / name, tmp_path / "copy", video_files_size_in_mb=0.05)
    program = [python, "-c", PROGRAM, str(tmp_path / "copy"), str(tmp_path / "items.npz")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    items, source = np.load(tmp_path / "items.npz"), LeRobotDataset("some/name", FIXTURES / name)

    assert len(items.files) == sum(len(item) for item in source)
    for number, item in enumerate(source):
        for key, value in item.items():
            want, found = np.asarray(value), items[f"{number}|{key}"]
            if key in source.meta.camera_keys:
                assert np.abs(want - found.astype(np.float64)).max() <= 1 / 255 + 1e-6
            else:
                assert np.array_equal(want, found), (number, key)
