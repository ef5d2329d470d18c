# SPDX-License-Identifier: Apache-2.0
"""Open video files: their bytes and frame indices. The least recently used are closed."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robostream.decode.frame_index import FrameIndex
from robostream.decode.indexing import build_index, drop_index, load_index, save_index
from robostream.decode.statistics import Meter
from robostream.errors import (
    DamagedFileError,
    MissingFileError,
    ReplacedFileError,
    StorageError,
    VideoFileError,
)
from robostream.storage import ByteSource, LruCache

logger = logging.getLogger(__name__)
_unwritable: set[Path] = set()


class VideoSource(ByteSource):
    """The bytes of a video file. Missing files and bytes raise VideoFileError.

    An episode can be quarantined for that. A network that is down says nothing about the video. A
    meter, if given, counts the time that reads take.
    """

    def __init__(self, source: ByteSource, meter: Meter | None = None) -> None:
        self.name = source.name
        self.identity = source.identity
        self._source = source
        self._meter = meter or Meter()

    def size(self) -> int:
        """Return the number of bytes in the file."""
        with _as_video_error():
            return self._source.size()

    def version(self) -> str:
        """Return a text that changes when the file does."""
        with _as_video_error():
            return self._source.version()

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version; raise if it is known to have others."""
        self._source.expect(size, version)

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        began = time.perf_counter()
        try:
            return self._source.read(start, stop)
        except (MissingFileError, DamagedFileError) as error:
            raise VideoFileError(str(error)) from error
        finally:
            self._meter.fetch_s += time.perf_counter() - began

    def fetch_start(self) -> None:
        """Fetch the start of a file that is likely small."""
        with _as_video_error():
            self._source.fetch_start()

    def ensure_cached(self, start: int, stop: int) -> None:
        """Copy the bytes [start, stop) to the local cache."""
        began = time.perf_counter()
        with _as_video_error():
            self._source.ensure_cached(start, stop)
        self._meter.fetch_s += time.perf_counter() - began


@contextmanager
def _as_video_error() -> Iterator[None]:
    try:
        yield
    except (MissingFileError, DamagedFileError) as error:
        raise VideoFileError(str(error)) from error


@dataclass(frozen=True, slots=True, eq=False)
class VideoFile:
    """An open video file."""

    name: str
    source: ByteSource
    index: FrameIndex


class VideoFiles:
    """At most `max_files` open files. Thread-safe: each file is opened once.

    A file that was dropped from here stays open while somebody still reads it.

    Args:
        open_source: Opens a file's bytes by its name.
        max_files: How many files are open at most.
        index_folder: Where the indices of files are saved; one folder per version of a dataset.
        looked_since_s: A saved index that some process compared with its file since then (seconds
            since 1970) is used without looking at the file again.
        meter: Counts files, and the time that reads of packets take. Only one thread may read them.
    """

    def __init__(
        self,
        open_source: Callable[[str], ByteSource],
        *,
        max_files: int,
        index_folder: Path | None = None,
        looked_since_s: float = math.inf,
        meter: Meter | None = None,
    ) -> None:
        if max_files < 1:
            raise ValueError(f"want room for at least one open file, got max_files={max_files}")
        self._open_source = open_source
        self._index_folder = index_folder
        self._looked_since_s = looked_since_s
        self._meter = meter or Meter()
        self._files: LruCache[str, VideoFile] = LruCache(max_files)
        self._lock = threading.Lock()
        # Held while a file is opened. A remote one takes some round trips, during which other
        # threads open other files.
        self._opening: dict[str, threading.Lock] = {}

    def __len__(self) -> int:
        return len(self._files)

    def get(self, name: str) -> VideoFile:
        """Return a file; open and index it if need be."""
        file = self._find(name)
        if file is not None:
            return file
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:
            file = self._find(name)
            return self._open(name) if file is None else file

    def explain(self, error: Exception) -> Exception:
        """Return a ReplacedFileError if that is why a video cannot be decoded, else the error.

        Compares files whose server gives no version with their index, and drops those that were
        replaced, so that they are read again.
        """
        if not isinstance(error, VideoFileError):
            return error
        with self._lock:
            files = [file for name in list(self._files) if (file := self._files.get(name))]
        replaced = [file for file in files if not file.source.version() and _is_replaced(file)]
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
            "would have shown it. It is read again; frames delivered before are of the old file."
        )

    def clear(self) -> None:
        """Drop all files. Does not wait for one that is being opened."""
        self._files = LruCache(self._files.budget)

    def _find(self, name: str) -> VideoFile | None:
        with self._lock:
            file = self._files.get(name)
            self._meter.file_hits += file is not None
            return file

    def _open(self, name: str) -> VideoFile:
        try:
            source = self._open_source(name)
            index = self._index(VideoSource(source))
            file = VideoFile(name, VideoSource(source, self._meter), index)
            with self._lock:
                self._files.put(name, file)
                self._meter.file_evictions += self._files.take_evictions()
            return file
        finally:
            with self._lock:
                self._meter.file_misses += 1
                self._opening.pop(name, None)

    def _index(self, source: ByteSource) -> FrameIndex:
        folder = self._index_folder
        if folder is None:
            return build_index(source)
        index = load_index(folder, source, self._looked_since_s)
        if index is None:
            source.fetch_start()
            index = build_index(source)
            try:
                save_index(folder, index, source)
            except OSError as error:
                # The next process must build the index again. One warning per folder is enough.
                if folder not in _unwritable:
                    logger.warning("frame indices cannot be saved in %s: %s", folder, error)
                    _unwritable.add(folder)
                self._index_folder = None
        return index


def _is_replaced(file: VideoFile) -> bool:
    """Return whether a file's index has changed."""
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
