# SPDX-License-Identifier: Apache-2.0
"""The bytes of a video file: what is wrong with them is told as an error of the video."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from robostream.errors import DamagedFileError, MissingFileError, VideoFileError
from robostream.storage import ByteSource


class VideoSource:
    """A byte source whose file is a video."""

    def __init__(self, source: ByteSource) -> None:
        self.name = source.name
        self.identity = source.identity
        self._source = source

    def size(self) -> int:
        """Return the number of bytes in the file."""
        with as_video_error():
            return self._source.size()

    def version(self) -> str:
        """Return a text that changes when the file does."""
        with as_video_error():
            return self._source.version()

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version; raise if it is known to have others."""
        self._source.expect(size, version)

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        with as_video_error():
            return self._source.read(start, stop)

    def ensure_cached(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) close by."""
        with as_video_error():
            self._source.ensure_cached(start, stop)


@contextmanager
def as_video_error() -> Iterator[None]:
    """Turn the lack of a file, or of bytes in it, into a VideoFileError that says the same.

    An episode can be set aside for that. A network that is down says nothing about the video.
    """
    try:
        yield
    except (MissingFileError, DamagedFileError) as error:
        raise VideoFileError(str(error)) from error
