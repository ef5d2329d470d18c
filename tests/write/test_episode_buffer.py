# SPDX-License-Identifier: Apache-2.0
"""Episodes encoded without a writer, and encoders that fail or stop answering."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robostream import config
from robostream.errors import EncoderStalledError, FrameError, ModeError
from robostream.write import encode_episode
from robostream.write.episode_buffer import CameraThread
from tests.write.recording import check_dataset, frame, quick_writer, record

IMAGE = np.zeros((4, 4, 3), np.uint8)


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


class StuckEncoder:
    """Takes the first images, then waits for ever, as a hanging encoder does."""

    def __init__(self, *, sticks_at: int) -> None:
        self.sticks_at = sticks_at
        self.released = threading.Event()

    def add(self, image: Any) -> None:
        """Take an image, or wait."""
        self.sticks_at -= 1
        if self.sticks_at < 0:
            self.released.wait()

    def finish(self) -> None:
        """Wait."""
        self.released.wait()

    def abandon(self) -> None:
        """Do nothing."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "ENCODER_STALL_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_stuck_encoder_is_an_error_when_images_are_added() -> None:
    """Nobody waits for ever for room in the queue; cancelling ends too."""
    encoder = StuckEncoder(sticks_at=3)
    camera = CameraThread("front", encoder, queue_frames=2)  # type: ignore[arg-type]

    def put_many() -> None:
        for _ in range(20):
            camera.put(IMAGE)

    with pytest.raises(EncoderStalledError, match=r"front.*record this episode again"):
        put_many()
    camera.cancel()
    encoder.released.set()
    camera._thread.join()


@pytest.mark.usefixtures("impatient")
def test_a_stuck_encoder_is_an_error_when_the_episode_is_saved() -> None:
    """A stalled encoder is an error also while it finishes the video."""
    encoder = StuckEncoder(sticks_at=10)
    camera = CameraThread("front", encoder, queue_frames=2)  # type: ignore[arg-type]
    camera.put(IMAGE)
    with pytest.raises(EncoderStalledError, match="front"):
        camera.finish()
    encoder.released.set()
    camera._thread.join()
