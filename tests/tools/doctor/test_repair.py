# SPDX-License-Identifier: Apache-2.0
"""`--fix` writes a sound copy where nothing must be invented, and changes no value."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from robostream import LeRobotDataset
from robostream.assemble import DatasetLocation
from robostream.errors import WriteError
from robostream.tools import DoctorOptions, RepairReport, examine_dataset, repair_dataset
from tests.tools.doctor.broken import BROKEN, FRAMES
from tests.tools.doctor.test_broken import LEVELS, alarms

BY_NAME = {broken.name: broken for broken in BROKEN}
# Kinds that can be repaired, and the number of episodes that the copy has.
REPAIRED = {
    "info.json counts other frames": 6,
    "the table skips frames": 6,
    "info.json counts more episodes": 6,
    "a file of the table is missing": 3,
    "a split has more episodes": 6,
    "a file belongs to no episode": 6,
    "statistics that are texts": 6,
    "statistics of a camera in another shape": 6,
    "other images than the statistics'": 6,
    "times that begin late": 6,
    "a NaN in an action": 4,
    "times that do not ascend": 1,
    "times in nanoseconds": 3,
    "zeros in a file of rows": 4,
    "a video is a folder": 0,
    "a video is a broken link": 0,
    "a video of an unknown codec": 0,
    "there are no statistics": 6,
    "a deviation is missing": 6,
    "statistics of another shape": 6,
    "quantiles out of order": 6,
    "statistics of fewer frames": 6,
    "stale statistics": 6,
    "a span is too long": 6,
    "a span begins between two frames": 6,
    "spans overlap": 6,
    "the table names the wrong file of rows": 6,
    "frames in another order": 6,
    "an index that does not count on": 6,
    "statistics of a camera from 0 to 255": 6,
    "one episode in the wrong file of rows": 6,
    "rows numbered from 0 in each file": 6,
    "spans that begin a frame late": 6,
    "a file of rows written twice": 3,
    "a video is missing": 3,
    "a video is truncated": 1,
    "a file of rows lost its last row": 2,
    "a file of rows is missing": 0,
    "20 kB of zeros in a video": 1,
}
# Damage that encodes a video again, or changes values, and nothing brings back.
OTHER_VALUES = (
    "stale statistics",
    "other images than the statistics'",
    "20 kB of zeros in a video",
)


def repair(root: Path, dest: Path, level: str) -> RepairReport:
    place = LEVELS.index(level)
    options = DoctorOptions(reads_rows=place > 0, frames=float(place > 1), threads=2)
    before = examine_dataset(DatasetLocation(str(root)), options)
    return repair_dataset(str(root), dest, options, before=before)


def check_same_values(copy: Path, original: Path, episodes: int) -> None:
    """The copy's samples are those of the sound dataset, but for what statistics describe."""
    made, sound = (LeRobotDataset("a", root=root, return_uint8=True) for root in (copy, original))
    assert made.meta.total_episodes == episodes
    assert len(made) == episodes * FRAMES
    for number in range(0, len(made), 7):
        for key, value in sound[number].items():
            np.testing.assert_array_equal(value, made[number][key], err_msg=key)


@pytest.mark.parametrize("name", REPAIRED)
def test_a_copy_is_sound_and_has_the_same_values(name: str, sound: Path, tmp_path: Path) -> None:
    """No check warns of the copy, and its episodes are those of the sound dataset."""
    broken, episodes = BY_NAME[name], REPAIRED[name]
    root = Path(shutil.copytree(sound, tmp_path / "broken"))
    broken.damage(root)
    if not episodes:
        with pytest.raises(WriteError, match="nothing to keep"):
            repair(root, tmp_path / "copy", broken.level)
        assert not (tmp_path / "copy").exists()
        return
    made = repair(root, tmp_path / "copy", broken.level)

    assert alarms(made.examined) == {}
    assert made.repairs
    in_table = 3 if name == "a file of the table is missing" else 6
    assert list(made.left_out) == list(range(episodes, in_table))
    if name not in OTHER_VALUES:
        check_same_values(tmp_path / "copy", sound, episodes)
