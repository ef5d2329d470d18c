# SPDX-License-Identifier: Apache-2.0
"""Encoding beside recording: one thread per camera, fed by a bounded queue that never drops."""

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
    """Runs a camera's sink in a thread of its own, from the first image to `finish` or `cancel`."""

    def __init__(self, name: str, sink: CameraSink, *, queue_frames: int) -> None:
        self.num_frames = 0
        self._sink = sink
        self._queue: queue.Queue[Pixels | None] = queue.Queue(queue_frames)
        self._name = name
        self._cancelled = False
        self._busy_since: float | None = None
        self._result: Future[CameraResult | None] = Future()
        # A daemon, so that a program that forgets finalize() can still end.
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
        self._thread.join()

    def abandon(self) -> None:
        """Let the thread end within a second or so, without a result; waits for nothing."""
        self._cancelled = True

    def _offer(self, item: Pixels | None) -> None:
        # A plain put() would wait for ever if the thread has failed: nobody empties its queue then.
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
                f"{self._name}: the encoder has not taken or finished an image for "
                f"{config.ENCODER_STALL_S:.0f} s and will not come back (SVT-AV1 is known to do "
                "that, rarely). Saved episodes are intact. Call clear_episode_buffer() and record "
                "this episode again."
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
        if self._cancelled:
            self._sink.abandon()
            return None
        # To finish, some codecs encode dozens of images they held back. So the clock that tells
        # whether the encoder has stalled starts later by the time of four stalls.
        self._busy_since = time.monotonic() + 4 * config.ENCODER_STALL_S
        return self._sink.finish()
