# SPDX-License-Identifier: Apache-2.0
"""Encodes while a program records: one thread per camera, with a queue that loses no image."""

from __future__ import annotations

import contextlib
import io
import queue
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from robostream import config
from robostream.errors import EncoderStalledError
from robostream.write.encoder import EncodedVideo, VideoEncoder, VideoSpec
from robostream.write.episode_stats import (
    COLOUR_SUMMARY,
    DEPTH_SUMMARY,
    FeatureStats,
    colour_stats,
    depth_stats,
    sampled_frames,
    summarise_colour,
    summarise_depth,
)
from robostream.write.frames import Pixels

_POLL_S = 0.1
_PNG_LEVEL = 6  # LeRobot's level for cameras stored as images


@dataclass(frozen=True, slots=True)
class CameraResult:
    """One camera's part of an episode: statistics, and a video or named, encoded images."""

    stats: FeatureStats
    video: EncodedVideo | None
    images: list[tuple[str, bytes]]


class CameraSink:
    """Encodes and summarises one camera's images of one episode.

    Encoded images stay in memory until the episode is saved; videos and summaries go to files.

    Args:
        scratch: A file for the summaries; those of an hour-long episode would fill the memory.
        is_depth: Whether the images are distances.
        video: Path and specification of the video; None stores images instead.
    """

    def __init__(
        self, scratch: Path, *, is_depth: bool, video: tuple[Path, VideoSpec] | None
    ) -> None:
        self._is_depth = is_depth
        self._scratch = scratch
        self._encoder = VideoEncoder(*video) if video else None
        self._summaries = scratch.open("wb")
        self._images: list[tuple[str, bytes]] = []
        self._num_frames = 0

    def add(self, image: Pixels) -> None:
        """Summarise and encode the next image."""
        summary = summarise_depth(image) if self._is_depth else summarise_colour(image)
        self._summaries.write(summary.tobytes())
        if self._encoder is not None:
            self._encoder.add(image)
        else:
            self._images.append(_encode_image(image, self._num_frames))
        self._num_frames += 1

    def finish(self) -> CameraResult:
        """Finish the video and return the camera's part of the episode."""
        video = self._encoder.finish() if self._encoder is not None else None
        return CameraResult(self._stats(), video, self._images)

    def abandon(self) -> None:
        """Close all files without a result."""
        with contextlib.suppress(OSError):  # flushing fails on a full disk
            self._summaries.close()
        if self._encoder is not None:
            self._encoder.abandon()

    def _stats(self) -> FeatureStats:
        self._summaries.close()
        kind = DEPTH_SUMMARY if self._is_depth else COLOUR_SUMMARY
        every = np.memmap(self._scratch, kind.base, "r", shape=(self._num_frames, *kind.shape))
        sampled = np.array(every[sampled_frames(self._num_frames)])
        del every
        self._scratch.unlink()
        return depth_stats(sampled) if self._is_depth else colour_stats(sampled)


class CameraThread:
    """Runs one camera's sink in a thread of its own, until `finish` or `cancel` is called."""

    def __init__(self, name: str, sink: CameraSink, *, queue_frames: int) -> None:
        self.num_frames = 0
        self._sink = sink
        self._queue: queue.Queue[Pixels | None] = queue.Queue(queue_frames)
        self._name = name
        self._is_cancelled = False
        self._busy_since: float | None = None
        self._result: Future[CameraResult | None] = Future()
        # A daemon thread lets a program end that forgot finalize().
        self._thread = threading.Thread(target=self._run, name=f"encode {name}", daemon=True)
        self._thread.start()

    def put(self, image: Pixels) -> None:
        """Hand over the next image; blocks while the queue is full."""
        self._offer(image)
        self.raise_failure()
        self.num_frames += 1

    def raise_failure(self) -> None:
        """Raise the error that stopped the thread, if any."""
        if self._result.done():
            self._result.result()

    def finish(self) -> CameraResult:
        """Wait until all images are encoded and return the result; may be called again."""
        self._offer(None)
        self._wait()
        result = self._result.result()
        self._thread.join()
        assert result is not None  # only a cancelled thread returns None
        return result

    def cancel(self) -> None:
        """Stop without a result; drops images that are still queued."""
        self._is_cancelled = True
        try:
            self._offer(None)
            self._wait()
        except EncoderStalledError:
            return  # the thread hangs inside the encoder, and Python cannot stop a thread
        self._thread.join(config.ENCODER_STALL_S)  # a failed thread may hang in the encoder too

    def abandon(self) -> None:
        """Let the thread end within about a second, without a result; does not block."""
        self._is_cancelled = True

    def _offer(self, item: Pixels | None) -> None:
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

    def _next(self) -> Pixels | None:
        while True:
            try:
                return self._queue.get(timeout=1.0)
            except queue.Empty:
                if self._is_cancelled:  # by abandon(), or by a cancel() that met a full queue
                    return None

    def _run(self) -> None:
        try:
            self._result.set_result(self._consume())
        except BaseException as error:  # raised again in the caller's thread
            self._result.set_exception(error)
            self._sink.abandon()

    def _consume(self) -> CameraResult | None:
        while (image := self._next()) is not None:
            if not self._is_cancelled:
                self._busy_since = time.monotonic()
                self._sink.add(image)
                self._busy_since = None
        # Some codecs hold back dozens of images until the end, so finishing may take five times as
        # long as one image before the encoder counts as stalled.
        self._busy_since = time.monotonic() + 4 * config.ENCODER_STALL_S
        if self._is_cancelled:
            self._sink.abandon()
            return None
        return self._sink.finish()


def _encode_image(image: Pixels, frame_index: int) -> tuple[str, bytes]:
    """Return the name and bytes of an encoded image: PNG for colour, raw TIFF for depth."""
    content = io.BytesIO()
    if image.ndim == 2:
        Image.fromarray(image).save(content, "TIFF", compression="raw")
        return f"frame-{frame_index:06d}.tiff", content.getvalue()
    Image.fromarray(image).save(content, "PNG", compress_level=_PNG_LEVEL)
    return f"frame-{frame_index:06d}.png", content.getvalue()
