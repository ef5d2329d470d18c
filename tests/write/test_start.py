# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from robostream.dataset import LeRobotDataset
from robostream.errors import MetadataError, WriteError
from robostream.write import resume_writer
from tests.write.recording import FEATURES, FPS, QUICK, check_dataset, frame, quick_writer, record


def test_a_recording_stays_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative root means the folder the program was in when the recording began."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    writer = quick_writer(Path("a"))
    number = record(writer, [2])
    monkeypatch.chdir("elsewhere")
    number = record(writer, [3], first=number)
    writer.finalize()
    monkeypatch.chdir(tmp_path)
    writer = resume_writer("a")
    monkeypatch.chdir("elsewhere")
    record(writer, [1], first=number)
    writer.finalize()

    check_dataset(tmp_path / "a", [2, 3, 1])
    assert list(Path.cwd().iterdir()) == []


def test_a_recorded_dataset_is_read_where_it_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LeRobotDataset, too, keeps to the folder in which its recording began."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    dataset = LeRobotDataset.create("me/a", FPS, FEATURES, root="a", rgb_encoder=QUICK)
    monkeypatch.chdir("elsewhere")
    dataset.add_frame(frame(0))
    dataset.save_episode()
    dataset.finalize()

    assert dataset.root == tmp_path / "a"
    assert dataset[0]["observation.state"].tolist() == [0] * 6


def test_a_path_for_a_name_is_recorded_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root, ./a is the folder here, not one in HF_LEROBOT_HOME."""
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.chdir(tmp_path)
    dataset = LeRobotDataset.create("./a", FPS, FEATURES, rgb_encoder=QUICK)
    dataset.add_frame(frame(0))
    dataset.save_episode()
    dataset.finalize()

    assert LeRobotDataset("./a").root == dataset.root == tmp_path / "a"


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root such as ~/a lies in the user's home, for new recordings and resumed ones."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with quick_writer(Path("~/a")) as writer:
        number = record(writer, [2])
    with resume_writer("~/a") as writer:
        record(writer, [1], first=number)

    check_dataset(tmp_path / "home/a", [2, 1])
    assert not (tmp_path / "~").exists()


def test_a_url_cannot_be_recorded_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL raises; it is not taken for a folder called "s3:"."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WriteError, match="want a local folder"):
        LeRobotDataset.create("me/a", FPS, FEATURES, root="s3://bucket/a")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["robot_type", "name of a feature"])
def test_texts_of_the_dataset_must_be_utf8(tmp_path: Path, text: str) -> None:
    """A value that info.json cannot store raises before the folder is made."""
    features = {"\ud800" if text == "name of a feature" else "x": FEATURES["observation.state"]}
    robot_type = "\ud800" if text == "robot_type" else None
    with pytest.raises(MetadataError, match="UTF-8"):
        quick_writer(tmp_path / "a", features, robot_type=robot_type)

    assert not (tmp_path / "a").exists()
