# SPDX-License-Identifier: Apache-2.0
"""Each kind of broken dataset is named by the lowest level that can see it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robostream.assemble import DatasetLocation
from robostream.tools import (
    DoctorOptions,
    Examination,
    RecodeSpec,
    SynthSpec,
    convert_dataset,
    examine_dataset,
    make_dataset,
    recode_dataset,
)
from robostream.tools.doctor.findings import Verdict
from tests.fixture_datasets import FIXTURES, ROOTS, root_id
from tests.tools.doctor.broken import BROKEN, UNUSUAL, Broken

LEVELS = ("default", "rows", "frames")


def examine(root: Path, level: str = "frames", **options: object) -> Examination:
    place = LEVELS.index(level)
    wanted = DoctorOptions(reads_rows=place > 0, frames=float(place > 1), threads=2, **options)
    return examine_dataset(DatasetLocation(str(root)), wanted)


def alarms(examined: Examination) -> dict[str, list[int]]:
    """The checks that warn or fail, and the episodes they name."""
    found = examined.findings
    return {f.check.id: f.episodes for f in found if f.verdict >= Verdict.WARNING}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name.replace(" ", "_"))
def test_the_lowest_level_names_the_fault(broken: Broken, sound: Path, tmp_path: Path) -> None:
    """A check names the fault and its episodes; levels that read less find nothing."""
    root = Path(shutil.copytree(sound, tmp_path / "broken"))
    broken.damage(root)
    for lower in LEVELS[: LEVELS.index(broken.level)]:
        assert alarms(examine(root, lower)) == {}
    found = alarms(examine(root, broken.level))

    assert broken.check in found
    if broken.episodes:
        assert tuple(found[broken.check]) == broken.episodes


def test_a_sound_dataset_raises_no_alarm(sound: Path) -> None:
    """Reading everything, no check warns."""
    assert alarms(examine(sound)) == {}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_raises_no_alarm(name: str, sound: Path, tmp_path: Path) -> None:
    """Nor do other codecs, layouts and types of columns that hold the same data."""
    root = Path(shutil.copytree(sound, tmp_path / "unusual"))
    UNUSUAL[name](root)

    assert alarms(examine(root)) == {}


@pytest.mark.parametrize("root", ROOTS, ids=root_id)
def test_datasets_of_lerobot_raise_no_alarm(root: Path) -> None:
    """Neither do datasets that LeRobot wrote."""
    assert alarms(examine(root)) == {}


def test_copies_raise_no_alarm(sound: Path, tmp_path: Path) -> None:
    """Nor do datasets that were re-encoded, or converted from v2.1."""
    recode_dataset(sound, tmp_path / "recoded", RecodeSpec("h264", 4))
    convert_dataset(FIXTURES / "v21_videos", tmp_path / "converted")

    assert alarms(examine(tmp_path / "recoded")) == {}
    assert alarms(examine(tmp_path / "converted")) == {}


@pytest.mark.long
def test_a_synthetic_dataset_raises_no_alarm(tmp_path: Path) -> None:
    """Three cameras, one of them on the arm, and a depth camera."""
    spec = SynthSpec(episodes=3, depth=True, width=96, height=96, min_frames=90, max_frames=90)
    make_dataset(tmp_path / "synth", spec)

    assert alarms(examine(tmp_path / "synth")) == {}
