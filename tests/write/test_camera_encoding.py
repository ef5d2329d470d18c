# SPDX-License-Identifier: Apache-2.0
"""Encoders that fail or stop answering: the recorder learns of it, and can end."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from robostream import config
from robostream.errors import EncoderStalledError
from robostream.write.camera_encoding import CameraThread

IMAGE = np.zeros((4, 4, 3), np.uint8)


class StuckSink:
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
    sink = StuckSink(sticks_at=3)
    camera = CameraThread("front", sink, queue_frames=2)  # type: ignore[arg-type]

    def put_many() -> None:
        for _ in range(20):
            camera.put(IMAGE)

    with pytest.raises(EncoderStalledError, match=r"front.*record this episode again"):
        put_many()
    camera.cancel()
    sink.released.set()
    camera._thread.join()


@pytest.mark.usefixtures("impatient")
def test_a_stuck_encoder_is_an_error_when_the_episode_is_saved() -> None:
    """A stalled encoder is an error also while it finishes the video."""
    sink = StuckSink(sticks_at=10)
    camera = CameraThread("front", sink, queue_frames=2)  # type: ignore[arg-type]
    camera.put(IMAGE)
    with pytest.raises(EncoderStalledError, match="front"):
        camera.finish()
    sink.released.set()
    camera._thread.join()
