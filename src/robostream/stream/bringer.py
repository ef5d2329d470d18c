# SPDX-License-Identifier: Apache-2.0
"""Brings the bytes of parts of episodes from a remote dataset to the cache on the local disk."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from robostream.assemble import (
    Offsets,
    OpenedDataset,
    RowBytes,
    RowReader,
    find_pictures,
    picture_span,
)
from robostream.decode import VideoFiles
from robostream.storage import Door
from robostream.stream.frame_shelf import FrameShelf
from robostream.stream.prefetch import Coming


class Bringer:
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
        door: Door,
        cameras: Sequence[str],
        offsets: Sequence[Offsets],
        *,
        files: VideoFiles,
        shelf: FrameShelf,
    ) -> None:
        self._dataset = dataset
        self._door = door
        self._cameras = cameras
        self._offsets = offsets
        self._shelf = shelf
        self._files = files
        self._rows = RowReader(dataset, door, [])
        self._lock = threading.Lock()

    def bring(self, coming: Coming, when: float) -> None:
        """Have the bytes of a part of an episode close by until it is read. Blocks.

        Args:
            coming: The part.
            when: When its first frame is due, as `NextUse` counts.
        """
        for camera in coming.videos:
            if not self._are_kept(coming, camera):
                self._bring(*self._pictures(coming, camera), when)
        if coming.rows:
            rows = self._rows_of(coming)
            self._door.due(rows.file, *rows.footer, when)
            self._bring(rows.file, rows.groups, when)

    def release(self, coming: Coming, when: float) -> None:
        """Say that a part of an episode was read, and when it is read next."""
        for camera in coming.videos:
            file, span = self._pictures(coming, camera)
            self._door.due(file, *span, math.inf if self._are_kept(coming, camera) else when)
        if coming.rows:
            rows = self._rows_of(coming)
            self._door.due(rows.file, *rows.footer, when)
            self._door.due(rows.file, *rows.groups, math.inf if rows.are_shared else when)

    def _bring(self, file: str, span: tuple[int, int], when: float) -> None:
        self._door.due(file, *span, when)
        self._door.open(file).bring(*span)

    def _are_kept(self, coming: Coming, camera: int) -> bool:
        return self._shelf.has_all(camera, coming.episode, coming.first, coming.stop)

    def _pictures(self, coming: Coming, camera: int) -> tuple[str, tuple[int, int]]:
        """Return the file of a camera's pictures, and their bytes."""
        key, part = self._cameras[camera], (coming.first, coming.stop)
        file, numbers = find_pictures(self._dataset, self._files, coming.episode, key)
        return file.name, picture_span(file, numbers, *part, self._offsets[camera])

    def _rows_of(self, coming: Coming) -> RowBytes:
        with self._lock:
            return self._rows.find(coming.episode)
