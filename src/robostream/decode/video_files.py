# SPDX-License-Identifier: Apache-2.0
"""Video files held open: their byte source and frame index. Those used longest ago are closed."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robostream.decode.index.frame_index import FrameIndex
from robostream.decode.index.index_cache import drop_index, load_index, save_index
from robostream.decode.index.indexing import build_index
from robostream.decode.video_source import VideoSource
from robostream.errors import ReplacedFileError, StorageError, VideoFileError
from robostream.storage import ByteSource, LruCache

logger = logging.getLogger(__name__)
_unwritable: set[Path] = set()


@dataclass(frozen=True, slots=True, eq=False)
class VideoFile:
    """What is held for one file."""

    name: str
    source: ByteSource
    index: FrameIndex


class VideoFiles:
    """At most `max_files` files open at a time. Thread-safe: each file is opened once.

    A file that was dropped from here stays open while somebody still reads it.

    Args:
        open_source: Opens a file's bytes by its name.
        max_files: How many files are held open at most.
        index_folder: Where the indices of files are saved; one folder per version of a dataset.
        looked_since_s: A saved index that some process compared with its file since then (seconds
            since 1970) is taken without looking at the file again.
    """

    def __init__(
        self,
        open_source: Callable[[str], ByteSource],
        *,
        max_files: int,
        index_folder: Path | None = None,
        looked_since_s: float = math.inf,
    ) -> None:
        if max_files < 1:
            raise ValueError(f"want room for at least one open file, got max_files={max_files}")
        self._hits = 0
        self._misses = 0
        self._open_source = open_source
        self._index_folder = index_folder
        self._looked_since_s = looked_since_s
        self._files: LruCache[str, VideoFile] = LruCache(max_files)
        self._lock = threading.Lock()
        # Held while a file is opened: of a remote one that takes some round trips, in which other
        # threads open other files.
        self._opening: dict[str, threading.Lock] = {}

    def __len__(self) -> int:
        return len(self._files)

    def take_counts(self) -> dict[str, int]:
        """Return what was done since the last call, by the names `Meter.take` knows."""
        counts = {
            "file_hits": self._hits,
            "file_misses": self._misses,
            "file_evictions": self._files.take_evictions(),
        }
        self._hits = self._misses = 0
        return counts

    def get(self, name: str) -> VideoFile:
        """Return a file, opened and indexed if need be."""
        held = self._held(name)
        if held is not None:
            return held
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:
            held = self._held(name)
            return self._open(name) if held is None else held

    def explain(self, error: Exception) -> Exception:
        """Return a ReplacedFileError if that is why a video cannot be decoded, else the error.

        Files whose server gives no version are compared with their index; those that were replaced
        are let go of, so that they are read again.
        """
        if not isinstance(error, VideoFileError):
            return error
        with self._lock:
            held = [file for name in list(self._files) if (file := self._files.get(name))]
        replaced = [file for file in held if not file.source.version() and _is_replaced(file)]
        with self._lock:
            for file in replaced:
                self._files.forget(file.name)
                if self._index_folder is not None:
                    drop_index(self._index_folder, file.source)
        if not replaced:
            return error
        return ReplacedFileError(
            f"{replaced[0].source.name}: the file was replaced by another of the same size while "
            "it was read, and the server gives no version of it (ETag or Last-Modified) that "
            "would have told so. It is read again; frames delivered before are of the old file."
        )

    def clear(self) -> None:
        """Let go of all files. Does not wait for one that is being opened."""
        self._files = LruCache(self._files.budget)

    def _held(self, name: str) -> VideoFile | None:
        with self._lock:
            held = self._files.get(name)
            self._hits += held is not None
            return held

    def _open(self, name: str) -> VideoFile:
        try:
            source = VideoSource(self._open_source(name))
            file = VideoFile(name, source, self._index(source))
            with self._lock:
                return self._files.put(name, file)
        finally:
            with self._lock:
                self._misses += 1
                self._opening.pop(name, None)

    def _index(self, source: ByteSource) -> FrameIndex:
        folder = self._index_folder
        if folder is None:
            return build_index(source)
        index = load_index(folder, source, self._looked_since_s)
        if index is None:
            index = build_index(source)
            try:
                save_index(folder, index, source)
            except OSError as error:
                # It is not needed, but the next process must make the index again. One warning
                # per folder is enough.
                if folder not in _unwritable:
                    logger.warning("frame indices cannot be kept in %s: %s", folder, error)
                    _unwritable.add(folder)
                self._index_folder = None
        return index


def _is_replaced(file: VideoFile) -> bool:
    """Return whether a file's index is another by now."""
    try:
        now = build_index(file.source)
    except VideoFileError:
        return True
    except StorageError:  # the network's fault, not the file's
        return False
    return not all(
        np.array_equal(getattr(now, name), getattr(file.index, name))
        for name in ("byte_offsets", "sizes", "pts")
    )
