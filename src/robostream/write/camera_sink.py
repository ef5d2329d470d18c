# SPDX-License-Identifier: Apache-2.0
"""Takes one camera's images of an episode; makes a video or pictures of them, and statistics."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.write.camera_summary import (
    COLOUR_SUMMARY,
    DEPTH_SUMMARY,
    colour_stats,
    depth_stats,
    sampled_frames,
    summarise_colour,
    summarise_depth,
)
from robostream.write.encoder import EncodedVideo, VideoEncoder, VideoSpec
from robostream.write.episode_stats import FeatureStats

_PNG_LEVEL = 6  # what LeRobot stores image-dtype cameras with

Pixels = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CameraResult:
    """What an episode has of one camera: statistics, and a video or encoded pictures with names."""

    stats: FeatureStats
    video: EncodedVideo | None
    pictures: list[tuple[str, bytes]]


class CameraSink:
    """Takes one camera's images of one episode, one after the other.

    Pictures are kept in memory until the episode is saved; videos and summaries are not.

    Args:
        scratch: A file for the summaries; those of an hour-long episode would fill the memory.
        depth: Whether the images are distances.
        video: Path and specification of the video; None stores pictures instead.
    """

    def __init__(self, scratch: Path, *, depth: bool, video: tuple[Path, VideoSpec] | None) -> None:
        self._depth = depth
        self._scratch = scratch
        self._encoder = VideoEncoder(*video) if video else None
        self._summaries = scratch.open("wb")
        self._pictures: list[tuple[str, bytes]] = []
        self._num_frames = 0

    def add(self, image: Pixels) -> None:
        """Summarise and encode the next image."""
        summary = summarise_depth(image) if self._depth else summarise_colour(image)
        self._summaries.write(summary.tobytes())
        if self._encoder is not None:
            self._encoder.add(image)
        else:
            self._pictures.append(encode_picture(image, self._num_frames))
        self._num_frames += 1

    def finish(self) -> CameraResult:
        """Finish the video and return what the episode has of this camera."""
        video = self._encoder.finish() if self._encoder is not None else None
        return CameraResult(self._stats(), video, self._pictures)

    def abandon(self) -> None:
        """Close all files; nobody needs them any more."""
        with contextlib.suppress(OSError):  # the rest of the file does not fit a full disk
            self._summaries.close()
        if self._encoder is not None:
            self._encoder.abandon()

    def _stats(self) -> FeatureStats:
        self._summaries.close()
        kind = DEPTH_SUMMARY if self._depth else COLOUR_SUMMARY
        every = np.memmap(self._scratch, kind.base, "r", shape=(self._num_frames, *kind.shape))
        chosen = np.array(every[sampled_frames(self._num_frames)])
        del every
        self._scratch.unlink()
        return depth_stats(chosen) if self._depth else colour_stats(chosen)


def encode_picture(image: Pixels, frame_index: int) -> tuple[str, bytes]:
    """Return the name and bytes of a picture: PNG for colour, raw TIFF for depth."""
    depth = image.ndim == 2
    content = io.BytesIO()
    picture = Image.fromarray(image)
    if depth:
        picture.save(content, "TIFF", compression="raw")
    else:
        picture.save(content, "PNG", compress_level=_PNG_LEVEL)
    return f"frame-{frame_index:06d}.{'tiff' if depth else 'png'}", content.getvalue()
