# SPDX-License-Identifier: Apache-2.0
"""The episode being recorded: its rows are in memory, its images go to the encoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robostream import arguments
from robostream.errors import WriteError
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    DatasetInfo,
    image_shape,
    is_depth,
    keys_of_dtype,
)
from robostream.write.camera_sink import CameraResult, CameraSink
from robostream.write.camera_thread import CameraThread
from robostream.write.encoder import VideoSpec, frame_rate
from robostream.write.encoder_options import DepthEncoderConfig, VideoEncoderConfig
from robostream.write.frame_check import CheckedFrame
from robostream.write.staging import remove_folder, video_path


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How a writer encodes colour and depth, and how many images may wait for each encoder."""

    encoder: VideoEncoderConfig
    depth_encoder: DepthEncoderConfig
    queue_frames: int

    def __post_init__(self) -> None:
        arguments.whole_number(self.queue_frames, "queue_frames (encoder_queue_maxsize)", least=0)
        colour, depth = VideoEncoderConfig, DepthEncoderConfig
        arguments.of_kind(self.encoder, "encoder (rgb_encoder)", colour, "a VideoEncoderConfig")
        arguments.of_kind(self.depth_encoder, "depth_encoder", depth, "a DepthEncoderConfig")


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """An episode whose images are all encoded.

    Attributes:
        tasks: The task of each frame.
        columns: By feature, the values of all frames; numbers are arrays with frames first.
    """

    num_frames: int
    tasks: list[str]
    columns: dict[str, Any]
    cameras: dict[str, CameraResult]


class EpisodeBuffer:
    """Collects frames until `finish` or `discard`; its files lie in `folder`."""

    def __init__(self, folder: Path, info: DatasetInfo, options: RecordingOptions) -> None:
        self._folder = folder
        self._info = info
        self._options = options
        self._tasks: list[str] = []
        self._rows: dict[str, list[Any]] = {
            name: []
            for name, entry in info.features.items()
            if name not in DEFAULT_FEATURES and entry["dtype"] not in CAMERA_DTYPES
        }
        self._cameras: dict[str, CameraThread] = {}
        self._started = False
        self._finished = False

    @property
    def num_frames(self) -> int:
        """The frames added so far."""
        return len(self._tasks)

    def add(self, frame: CheckedFrame) -> None:
        """Add a checked frame; waits while an encoder's queue is full."""
        if self._finished:
            raise WriteError(
                "save_episode() has failed for this episode, so no more frames can be added to it. "
                "Call save_episode() again, or clear_episode_buffer() to record the episode again."
            )
        if not self._started:
            self._start()
        for camera in self._cameras.values():
            camera.raise_failure()
        for key, camera in self._cameras.items():
            camera.put(frame.values[key])
        for name, values in self._rows.items():
            values.append(frame.values[name])
        self._tasks.append(frame.task)

    def finish(self) -> RecordedEpisode:
        """Wait for the encoders and return the episode; may be called again."""
        torn = {key: c.num_frames for key, c in self._cameras.items()}
        if any(count != self.num_frames for count in torn.values()):
            raise WriteError(
                "add_frame() was interrupted after some of the cameras had taken their image: want "
                f"{self.num_frames} images of each, found {torn}. Call clear_episode_buffer() and "
                "record this episode again."
            )
        self._finished = True
        cameras = {key: camera.finish() for key, camera in self._cameras.items()}
        return RecordedEpisode(self.num_frames, self._tasks, self._columns(cameras), cameras)

    def discard(self) -> None:
        """Stop the encoders and delete the episode's files."""
        for camera in self._cameras.values():
            camera.cancel()
        self._cameras.clear()
        remove_folder(self._folder)

    def abandon(self) -> None:
        """Let the encoders end by themselves; waits for nothing and leaves the files."""
        for camera in self._cameras.values():
            camera.abandon()

    def _columns(self, cameras: Mapping[str, CameraResult]) -> dict[str, Any]:
        numbers = {
            name: np.stack(values)
            for name, values in self._rows.items()
            if self._info.features[name]["dtype"] not in ("string", "language")
        }
        pictures = {key: result.pictures for key, result in cameras.items() if not result.video}
        return {**self._rows, **numbers, **pictures}

    def _start(self) -> None:
        remove_folder(self._folder)
        self._folder.mkdir(parents=True)
        try:
            for key in keys_of_dtype(self._info.features, CAMERA_DTYPES):
                self._cameras[key] = self._start_camera(key)
        except BaseException:
            self.discard()
            raise
        self._started = True

    def _start_camera(self, key: str) -> CameraThread:
        entry = self._info.features[key]
        video = None
        if entry["dtype"] == "video":
            video = (video_path(self._folder, key), self._video_spec(entry))
        sink = CameraSink(self._folder / f"{key}.scratch", depth=is_depth(entry), video=video)
        return CameraThread(key, sink, queue_frames=self._options.queue_frames)

    def _video_spec(self, entry: Mapping[str, Any]) -> VideoSpec:
        _, height, width = image_shape(entry)
        rate = frame_rate(self._info.fps)
        if is_depth(entry):
            depth = self._options.depth_encoder
            return VideoSpec(width, height, rate, depth.video, depth.coding)
        return VideoSpec(width, height, rate, self._options.encoder)
