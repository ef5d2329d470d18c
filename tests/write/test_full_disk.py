# SPDX-License-Identifier: Apache-2.0
"""On a full disk, saved episodes stay, no partial file is visible, and recording can continue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robostream.errors import WriteError
from robostream.write import DatasetWriter, resume_writer
from tests.write.recording import (
    TOP,
    check_dataset,
    file_size_limit,
    frame,
    load,
    quick_writer,
    record,
    rows,
)


def visible(root: Path) -> list[str]:
    return sorted(
        str(p.relative_to(root))
        for p in root.rglob("*")
        if p.is_file() and not str(p.relative_to(root)).startswith(".")
    )


def save_noise(writer: DatasetWriter, count: int) -> None:
    """Save an episode whose images do not compress."""
    rng = np.random.default_rng(0)
    for number in range(count):
        noise = rng.integers(0, 256, (64, 96, 3)).astype(np.uint8)
        writer.add_frame(frame(number) | {TOP: noise})
    writer.save_episode()


def test_an_episode_that_does_not_fit_is_given_up_alone(tmp_path: Path) -> None:
    """The error says what was being written and that the rest is safe; recording can continue."""
    writer = quick_writer(tmp_path / "a")
    number = record(writer, [3])
    wanted = r"images of episode 1.*All episodes saved before"
    with file_size_limit(20_000), pytest.raises(WriteError, match=wanted) as error:
        save_noise(writer, 200)
    assert "clear_episode_buffer()" in str(error.value)
    assert "left." in str(error.value)
    with pytest.raises(WriteError):  # the episode stays broken until it is cleared
        writer.save_episode()
    writer.clear_episode_buffer()
    record(writer, [4], first=number)
    writer.finalize()

    check_dataset(tmp_path / "a", [3, 4])


def test_rows_that_do_not_fit_can_be_saved_again(tmp_path: Path) -> None:
    """Once there is room, save_episode() takes the same frames: nothing has to be recorded anew."""
    features = {"x": {"dtype": "float64", "shape": (256,), "names": None}}
    values = np.random.default_rng(0).random((50, 256))
    with quick_writer(tmp_path / "a", features) as writer:
        for value in values:
            writer.add_frame({"x": value, "task": "wait"})
        with (
            file_size_limit(20_000),
            pytest.raises(WriteError, match=r"episode 0 \(50 frames\).*save_episode\(\) again"),
        ):
            writer.save_episode()
        assert writer.num_episodes == 0
        with pytest.raises(WriteError, match="no more frames can be added"):
            writer.add_frame({"x": values[0], "task": "wait"})
        writer.save_episode()

    np.testing.assert_array_equal(rows(tmp_path / "a")["x"].to_pylist(), values)


def test_a_failed_finalize_shows_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    """Joined files that do not fit leave the dataset as it was, until finalize() succeeds."""
    root = tmp_path / "a"
    with quick_writer(root) as writer:
        number = record(writer, [2])
    before = visible(root)
    writer = resume_writer(root)
    record(writer, [30] * 6, first=number)
    largest = max(p.stat().st_size for p in (root / ".recording").rglob("*") if p.is_file())
    with file_size_limit(largest), pytest.raises(WriteError, match=r"finalize\(\) again"):
        writer.finalize()
    assert visible(root) == before
    assert load(root).total_episodes == 1
    writer.finalize()

    check_dataset(root, [2, *[30] * 6])


def test_a_recording_that_could_not_be_finalized_can_be_resumed(tmp_path: Path) -> None:
    """The error of a resume that finds no room is as clear, and a later one finds everything."""
    root = tmp_path / "a"
    writer = quick_writer(root)
    record(writer, [30] * 6)
    largest = max(p.stat().st_size for p in (root / ".recording").rglob("*") if p.is_file())
    with file_size_limit(largest), pytest.raises(WriteError, match="the dataset's files"):
        writer.finalize()
    writer._resources.lock.release()  # what the end of the process does
    with file_size_limit(largest), pytest.raises(WriteError, match="then resume again"):
        resume_writer(root)
    resume_writer(root).finalize()

    check_dataset(root, [30] * 6)


def test_a_dataset_that_cannot_be_created_raises(tmp_path: Path) -> None:
    """The error names the folder that cannot be written to."""
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="a new dataset failed"):
        quick_writer(tmp_path / "file" / "a")
