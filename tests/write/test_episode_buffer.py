# SPDX-License-Identifier: Apache-2.0
"""Episodes encoded without a writer give the same dataset as those recorded with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.errors import FrameError, ModeError
from robostream.write import encode_episode
from tests.write.recording import check_dataset, frame, quick_writer, record


def test_encoded_and_recorded_episodes_make_one_dataset(tmp_path: Path) -> None:
    """Their numbers, rows and images are those of the order they are saved in."""
    lengths = [5, 3, 4]
    with quick_writer(tmp_path / "a") as writer:
        last = (frame(number) for number in range(8, 12))
        episode = encode_episode(tmp_path / "later", writer.info, writer.options, last)
        record(writer, lengths[:2])
        writer.save_recorded(episode)

    check_dataset(tmp_path / "a", lengths)
    assert not (tmp_path / "later").exists()


def test_an_encoded_episode_does_not_replace_one_that_is_being_recorded(tmp_path: Path) -> None:
    """Frames added and not saved yet are not lost."""
    with quick_writer(tmp_path / "a") as writer:
        episode = encode_episode(tmp_path / "b", writer.info, writer.options, [frame(3)])
        for number in range(3):
            writer.add_frame(frame(number))
        with pytest.raises(ModeError, match="3 frames were added"):
            writer.save_recorded(episode)
        writer.save_episode()
        writer.save_recorded(episode)

    check_dataset(tmp_path / "a", [3, 1])


def test_what_cannot_be_recorded_leaves_no_folder(tmp_path: Path) -> None:
    """Neither an episode without frames nor one with a faulty frame."""
    with quick_writer(tmp_path / "a") as writer:
        for frames in ([], [frame(0), {"task": "move"}]):
            with pytest.raises(FrameError):
                encode_episode(tmp_path / "b", writer.info, writer.options, frames)

    assert [path.name for path in tmp_path.iterdir()] == ["a"]
