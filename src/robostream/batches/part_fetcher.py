# SPDX-License-Identifier: Apache-2.0
"""Brings the bytes of parts of episodes from a remote dataset to the cache on the local disk."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from robostream.assemble import (
    Offsets,
    OpenedDataset,
    RowReader,
    find_byte_span,
    find_frames,
)
from robostream.batches.frame_cache import FrameCache
from robostream.decode import VideoFiles
from robostream.plan import UpcomingPart
from robostream.storage import FileOpener


class _Span(NamedTuple):
    """Bytes [start, stop) of a file.

    Attributes:
        file: The file.
        start: The first byte.
        stop: One past the last.
        camera: The camera whose pictures they are; None for rows.
        is_last: Whether they are not read again, because all processes share what they hold.
    """

    file: str
    start: int
    stop: int
    camera: int | None = None
    is_last: bool = False


class PartFetcher:
    """What threads that fetch ahead have open. Thread-safe.

    Args:
        dataset: The dataset.
        door: What opens its files.
        cameras: Its cameras.
        offsets: The window of each camera.
        files: Its video files.
        shelf: Where decoded pictures are kept: those that are need no bytes.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        door: FileOpener,
        cameras: Sequence[str],
        offsets: Sequence[Offsets],
        *,
        files: VideoFiles,
        shelf: FrameCache,
    ) -> None:
        self._dataset = dataset
        self._door = door
        self._cameras = cameras
        self._offsets = offsets
        self._shelf = shelf
        self._files = files
        self._rows = RowReader(dataset, door, [])
        self._lock = threading.Lock()
        self._brought: dict[UpcomingPart, list[_Span]] = {}

    def bring(self, coming: UpcomingPart, when: float) -> None:
        """Have the bytes of a part of an episode close by until it is released. Blocks.

        Args:
            coming: The part.
            when: When its first frame is due, as `NextUse` counts.
        """
        brought = self._brought[coming] = []
        for span in self._spans(coming):
            self._door.prefetch(span.file, span.start, span.stop, when)
            brought.append(span)

    def release(self, coming: UpcomingPart, when: float) -> None:
        """Say that a part of an episode was read, and when it is read next. Asks no server."""
        for span in self._brought.pop(coming, ()):
            is_last = span.is_last or (
                span.camera is not None and self._are_kept(coming, span.camera)
            )
            self._door.release(span.file, span.start, span.stop, math.inf if is_last else when)

    def _spans(self, coming: UpcomingPart) -> Iterator[_Span]:
        """Yield what must be read for a part, opening its files."""
        for camera in coming.videos:
            if not self._are_kept(coming, camera):
                yield self._pictures(coming, camera)
        if coming.rows:
            with self._lock:
                rows = self._rows.find(coming.episode)
            yield _Span(rows.file, *rows.footer)
            yield _Span(rows.file, *rows.groups, is_last=rows.are_shared)

    def _are_kept(self, coming: UpcomingPart, camera: int) -> bool:
        return self._shelf.has_all(camera, coming.episode, coming.first, coming.stop)

    def _pictures(self, coming: UpcomingPart, camera: int) -> _Span:
        """Return the bytes of a camera's pictures."""
        key, part = self._cameras[camera], (coming.first, coming.stop)
        file, numbers = find_frames(self._dataset, self._files, coming.episode, key)
        span = find_byte_span(file, numbers, *part, self._offsets[camera])
        return _Span(file.name, *span, camera=camera)
