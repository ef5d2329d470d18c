# SPDX-License-Identifier: Apache-2.0
"""The episode being recorded: its rows stay in memory, its images go to the encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robostream import arguments
from robostream.errors import FrameError, WriteError
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    DatasetInfo,
    depth_unit,
    image_shape,
    is_depth,
    keys_of_dtype,
)
from robostream.write.camera_encoding import CameraResult, CameraSink, CameraThread
from robostream.write.encoder import VideoSpec, frame_rate
from robostream.write.encoder_options import DepthEncoderConfig, VideoEncoderConfig
from robostream.write.frames import CheckedFrame, check_frame
from robostream.write.staging import remove_folder, video_path


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """The encoders of colour and depth, and how many images may wait for each encoder."""

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
    """An encoded episode that is not saved yet, so it has no number.

    Attributes:
        folder: Holds its videos.
        tasks: The task of each frame.
        columns: By feature, the values of all frames; numbers are arrays with frames first.
        depth_units: The unit of each depth camera.
    """

    folder: Path
    num_frames: int
    tasks: list[str]
    columns: dict[str, Any]
    cameras: dict[str, CameraResult]
    depth_units: dict[str, str]


class EpisodeBuffer:
    """Collects frames until `finish` or `discard`; its files are in `folder`.

    Attributes:
        depth_units: The unit of each depth camera, known after the first frame.
    """

    def __init__(self, folder: Path, info: DatasetInfo, options: RecordingOptions) -> None:
        self.depth_units: dict[str, str] = {}
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
        self._is_started = False
        self._is_finished = False

    @property
    def num_frames(self) -> int:
        """The frames added so far."""
        return len(self._tasks)

    def add(self, frame: CheckedFrame) -> None:
        """Add a checked frame; blocks while an encoder's queue is full."""
        if self._is_finished:
            raise WriteError(
                "save_episode() has failed for this episode, so no more frames can be added to it. "
                "Call save_episode() again, or clear_episode_buffer() to record the episode again."
            )
        if not self._is_started:
            self._start()
        for camera in self._cameras.values():
            camera.raise_failure()
        for key, camera in self._cameras.items():
            camera.put(frame.values[key])
        for name, values in self._rows.items():
            values.append(frame.values[name])
        self._tasks.append(frame.task)
        for key in self._info.depth_keys:
            self.depth_units[key] = depth_unit(frame.values[key].dtype)

    def finish(self) -> RecordedEpisode:
        """Wait for the encoders and return the episode; may be called again."""
        counts = {key: camera.num_frames for key, camera in self._cameras.items()}
        if any(count != self.num_frames for count in counts.values()):
            raise WriteError(
                "add_frame() was interrupted when only some cameras had received their image: want "
                f"{self.num_frames} images of each, found {counts}. Call clear_episode_buffer() "
                "and record this episode again."
            )
        self._is_finished = True
        cameras = {key: camera.finish() for key, camera in self._cameras.items()}
        numbers = {
            name: np.stack(values)
            for name, values in self._rows.items()
            if self._info.features[name]["dtype"] not in ("string", "language")
        }
        images = {key: result.images for key, result in cameras.items() if not result.video}
        columns = {**self._rows, **numbers, **images}
        return RecordedEpisode(
            self._folder, self.num_frames, self._tasks, columns, cameras, self.depth_units
        )

    def discard(self) -> None:
        """Stop the encoders and delete the episode's files."""
        for camera in self._cameras.values():
            camera.cancel()
        self._cameras.clear()
        remove_folder(self._folder)

    def abandon(self) -> None:
        """Let the encoders end soon; does not block and leaves the files."""
        for camera in self._cameras.values():
            camera.abandon()

    def _start(self) -> None:
        remove_folder(self._folder)
        self._folder.mkdir(parents=True)
        try:
            for key in keys_of_dtype(self._info.features, CAMERA_DTYPES):
                self._cameras[key] = self._start_camera(key)
        except BaseException:
            self.discard()
            raise
        self._is_started = True

    def _start_camera(self, key: str) -> CameraThread:
        entry = self._info.features[key]
        video = None
        if entry["dtype"] == "video":
            video = (video_path(self._folder, key), self._video_spec(entry))
        sink = CameraSink(self._folder / f"{key}.scratch", is_depth=is_depth(entry), video=video)
        return CameraThread(key, sink, queue_frames=self._options.queue_frames)

    def _video_spec(self, entry: Mapping[str, Any]) -> VideoSpec:
        _, height, width = image_shape(entry)
        rate = frame_rate(self._info.fps)
        if is_depth(entry):
            depth = self._options.depth_encoder
            return VideoSpec(width, height, rate, depth.video, depth.coding)
        return VideoSpec(width, height, rate, self._options.encoder)


def encode_episode(
    folder: Path, info: DatasetInfo, options: RecordingOptions, frames: Iterable[Mapping[str, Any]]
) -> RecordedEpisode:
    """Encode an episode without a writer, into `folder`, for `DatasetWriter.save_recorded`.

    It may run in another process. Raises FrameError if a frame has faults or there is no frame.
    """
    buffer = EpisodeBuffer(folder, info, options)
    try:
        for number, frame in enumerate(frames):
            where = f"frame {number} of an episode in {folder}"
            units = buffer.depth_units
            buffer.add(check_frame(frame, info.features, depth_units=units, where=where))
        episode = buffer.finish() if buffer.num_frames else None
    except BaseException:
        buffer.discard()
        raise
    if episode is None:
        raise FrameError(f"{folder}: want an episode of one frame or more, found none")
    return episode
