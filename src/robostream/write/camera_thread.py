# SPDX-License-Identifier: Apache-2.0
"""Encodes while a program records: one thread per camera, with a queue that loses no image."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future, wait

from robostream import config
from robostream.errors import EncoderStalledError
from robostream.write.camera_sink import CameraResult, CameraSink, Pixels

_POLL_S = 0.1


class CameraThread:
    """Runs the sink of one camera in its own thread, until `finish` or `cancel` is called."""

    def __init__(self, name: str, sink: CameraSink, *, queue_frames: int) -> None:
        self.num_frames = 0
        self._sink = sink
        self._queue: queue.Queue[Pixels | None] = queue.Queue(queue_frames)
        self._name = name
        self._cancelled = False
        self._busy_since: float | None = None
        self._result: Future[CameraResult | None] = Future()
        # A daemon thread does not keep a program that forgot finalize() from ending.
        self._thread = threading.Thread(target=self._run, name=f"encode {name}", daemon=True)
        self._thread.start()

    def put(self, image: Pixels) -> None:
        """Hand over the next image; waits while the queue is full."""
        self._offer(image)
        self.raise_failure()
        self.num_frames += 1

    def raise_failure(self) -> None:
        """Raise what stopped the thread, if something did."""
        if self._result.done():
            self._result.result()

    def finish(self) -> CameraResult:
        """Wait until all images are encoded and return the result; may be called again."""
        self._offer(None)
        self._wait()
        result = self._result.result()
        self._thread.join()
        assert result is not None  # only a cancelled thread returns none
        return result

    def cancel(self) -> None:
        """Stop without a result; images still waiting are thrown away."""
        self._cancelled = True
        try:
            self._offer(None)
            self._wait()
        except EncoderStalledError:
            return  # the thread hangs inside the encoder, and Python cannot stop a thread
        self._thread.join(config.ENCODER_STALL_S)  # one that has failed may still hang there

    def abandon(self) -> None:
        """Let the thread end within a second or so, without a result; waits for nothing."""
        self._cancelled = True

    def _offer(self, item: Pixels | None) -> None:
        # A put() without a timeout would wait for ever if the thread has failed: nobody takes
        # images from its queue any more.
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
                f"{self._name}: the encoder has been busy with one image, or with finishing the "
                f"video, for more than {config.ENCODER_STALL_S:.0f} s, so it has stalled (SVT-AV1 "
                "is known to do that, rarely). Saved episodes are intact. Call "
                "clear_episode_buffer() and record this episode again."
            )

    def _next(self) -> Pixels | None:
        while True:
            try:
                return self._queue.get(timeout=1.0)
            except queue.Empty:
                if self._cancelled:  # by abandon(), or by a cancel() that met a full queue
                    return None

    def _run(self) -> None:
        try:
            self._result.set_result(self._consume())
        except BaseException as error:  # raised again in the caller's thread
            self._result.set_exception(error)
            self._sink.abandon()

    def _consume(self) -> CameraResult | None:
        while (image := self._next()) is not None:
            if not self._cancelled:
                self._busy_since = time.monotonic()
                self._sink.add(image)
                self._busy_since = None
        # To finish, some codecs encode dozens of images that they held back. So finishing may take
        # five times as long as one image before the encoder counts as stalled.
        self._busy_since = time.monotonic() + 4 * config.ENCODER_STALL_S
        if self._cancelled:
            self._sink.abandon()
            return None
        return self._sink.finish()
