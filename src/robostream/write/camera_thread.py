# SPDX-License-Identifier: Apache-2.0
"""Encoding beside recording: one thread per camera, fed by a bounded queue that never drops."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from robostream.write.camera_sink import CameraResult, CameraSink, Pixels

_POLL_S = 0.1


class CameraThread:
    """Runs a camera's sink in a thread of its own, from the first image to `finish` or `cancel`."""

    def __init__(self, name: str, sink: CameraSink, *, queue_frames: int) -> None:
        self.num_frames = 0
        self._sink = sink
        self._queue: queue.Queue[Pixels | None] = queue.Queue(queue_frames)
        self._cancelled = False
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
        result = self._result.result()
        self._thread.join()
        assert result is not None  # only a cancelled thread returns none
        return result

    def cancel(self) -> None:
        """Stop without a result; images still waiting are thrown away."""
        self._cancelled = True
        self._offer(None)
        self._thread.join()

    def _offer(self, item: Pixels | None) -> None:
        # Not a plain put: nobody empties the queue of a thread that has failed.
        while not self._result.done():
            try:
                self._queue.put(item, timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def _run(self) -> None:
        try:
            self._result.set_result(self._consume())
        except BaseException as error:  # raised again in the caller's thread
            self._result.set_exception(error)
            self._sink.abandon()

    def _consume(self) -> CameraResult | None:
        while (image := self._queue.get()) is not None:
            if not self._cancelled:
                self._sink.add(image)
        if self._cancelled:
            self._sink.abandon()
            return None
        return self._sink.finish()
