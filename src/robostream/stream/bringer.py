# SPDX-License-Identifier: Apache-2.0
"""Brings the bytes of parts of episodes from a remote dataset to the cache on the local disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from robostream.assemble import Offsets, OpenedDataset, RowReader, bring_pictures, find_pictures
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
        self._cameras = cameras
        self._offsets = offsets
        self._shelf = shelf
        self._files = files
        self._rows = RowReader(dataset, door, [])
        self._lock = threading.Lock()

    def bring(self, coming: Coming) -> None:
        """Have the bytes of a part of an episode close by. Blocks."""
        for camera in coming.videos:
            self._bring_pictures(coming, camera)
        if coming.rows:
            with self._lock:
                source, start, stop = self._rows.find(coming.episode)
            source.bring(start, stop)

    def _bring_pictures(self, coming: Coming, camera: int) -> None:
        part = coming.first, coming.stop
        if self._shelf.has_all(camera, coming.episode, *part):
            return
        key = self._cameras[camera]
        file, numbers = find_pictures(self._dataset, self._files, coming.episode, key)
        bring_pictures(file, numbers, *part, self._offsets[camera])
