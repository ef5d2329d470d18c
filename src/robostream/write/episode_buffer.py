# SPDX-License-Identifier: Apache-2.0
"""The episode being recorded: its rows stay in memory, one thread per camera encodes its images."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robostream import config
from robostream.errors import EncoderStalledError, FrameError, WriteError
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, DatasetInfo, depth_unit, keys_of_dtype
from robostream.write.encoder import CameraEncoder, CameraResult
from robostream.write.encoder_options import RecordingOptions
from robostream.write.frames import CheckedFrame, Pixels, check_frame
from robostream.write.staging import remove_folder

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """An encoded episode that is not saved yet, so it has no number."""

    folder: Path  # holds its videos
    num_frames: int
    tasks: list[str]  # of each frame
    columns: dict[str, Any]  # by feature, all frames; numbers are arrays with frames first
    cameras: dict[str, CameraResult]
    depth_units: dict[str, str]


class CameraThread:
    """Runs one camera's encoder in a thread of its own, until `finish` or `cancel` is called."""

    def __init__(self, name: str, encoder: CameraEncoder, *, queue_frames: int) -> None:
        self.num_frames = 0
        self._encoder = encoder
        self._queue: queue.Queue[Pixels | None] = queue.Queue(queue_frames)
        self._name = name
        self._is_cancelled = False
        self._busy_since: float | None = None
        self._result: Future[CameraResult | None] = Future()
        # A daemon thread lets a program end that forgot finalize().
        self._thread = threading.Thread(target=self._run, name=f"encode {name}", daemon=True)
        self._thread.start()

    def put(self, image: Pixels) -> None:
        """Queue the next image; blocks while the queue is full."""
        self._enqueue(image)
        self.raise_failure()
        self.num_frames += 1

    def raise_failure(self) -> None:
        """Raise the error that stopped the thread, if any."""
        if self._result.done():
            self._result.result()

    def finish(self) -> CameraResult:
        """Wait until all images are encoded and return the result; may be called again."""
        self._enqueue(None)
        self._wait()
        result = self._result.result()
        self._thread.join()
        assert result is not None  # only a cancelled thread returns None
        return result

    def cancel(self) -> None:
        """Stop without a result; drops images that are still queued."""
        self._is_cancelled = True
        try:
            self._enqueue(None)
            self._wait()
        except EncoderStalledError:
            return  # the thread hangs inside the encoder, and Python cannot stop a thread
        self._thread.join(config.ENCODER_STALL_S)  # a failed thread may hang in the encoder too

    def abandon(self) -> None:
        """Let the thread end within about a second, without a result; does not block."""
        self._is_cancelled = True

    def _enqueue(self, item: Pixels | None) -> None:
        # With a timeout, because a failed thread never empties its queue.
        while not self._result.done():
            try:
                self._queue.put(item, timeout=_POLL_S)
                return
            except queue.Full:
                self._raise_if_stalled()

    def _wait(self) -> None:
        while not wait([self._result], timeout=_POLL_S).done:
            self._raise_if_stalled()

    def _raise_if_stalled(self) -> None:
        since = self._busy_since
        if since is not None and time.monotonic() - since > config.ENCODER_STALL_S:
            raise EncoderStalledError(
                f"{self._name}: the encoder has stalled: it has been busy with one image, or with "
                f"finishing the video, for more than {config.ENCODER_STALL_S:.0f} s (SVT-AV1 does "
                "this on rare occasions). Saved episodes are intact. Call clear_episode_buffer() "
                "and record this episode again."
            )

    def _run(self) -> None:
        try:
            self._result.set_result(self._encode())
        except BaseException as error:  # raised again in the caller's thread
            self._result.set_exception(error)
            self._encoder.abandon()

    def _encode(self) -> CameraResult | None:
        while not self._is_cancelled:
            try:
                image = self._queue.get(timeout=1.0)
            except queue.Empty:
                continue  # abandon() only sets a flag
            if image is None:
                break
            self._busy_since = time.monotonic()
            self._encoder.add(image)
            self._busy_since = None
        # Some codecs hold back dozens of images until the end, so finishing may take five times as
        # long as one image before the encoder counts as stalled.
        self._busy_since = time.monotonic() + 4 * config.ENCODER_STALL_S
        if self._is_cancelled:
            self._encoder.abandon()
            return None
        return self._encoder.finish()


class EpisodeBuffer:
    """Collects the frames of one episode after the other; its files are in `folder`."""

    def __init__(self, folder: Path, info: DatasetInfo, options: RecordingOptions) -> None:
        self._folder = folder
        self._info = info
        self._options = options
        self.reset()

    def reset(self) -> None:
        """Begin the next episode, after `finish` has returned this one."""
        self.depth_units: dict[str, str] = {}  # by depth camera, known after the first frame
        self._tasks: list[str] = []
        self._rows: dict[str, list[Any]] = {
            name: []
            for name, entry in self._info.features.items()
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
        """Stop the encoders, delete the episode's files, and begin the next episode."""
        for camera in self._cameras.values():
            camera.cancel()
        self._cameras.clear()
        remove_folder(self._folder)
        self.reset()

    def abandon(self) -> None:
        """Let the encoders end soon; does not block and leaves the files."""
        for camera in self._cameras.values():
            camera.abandon()

    def _start(self) -> None:
        remove_folder(self._folder)
        self._folder.mkdir(parents=True)
        try:
            for key in keys_of_dtype(self._info.features, CAMERA_DTYPES):
                encoder = CameraEncoder(key, self._folder, self._info, self._options)
                queue_frames = self._options.queue_frames
                self._cameras[key] = CameraThread(key, encoder, queue_frames=queue_frames)
        except BaseException:
            self.discard()
            raise
        self._is_started = True


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
        if buffer.num_frames:
            return buffer.finish()
    except BaseException:
        buffer.discard()
        raise
    raise FrameError(f"{folder}: want an episode of one frame or more, found none")
