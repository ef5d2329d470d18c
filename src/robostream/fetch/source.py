# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of one file, local or behind any fsspec filesystem."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from robostream.errors import VideoFileError
from robostream.meta import Location, as_connection_error


class ByteSource(Protocol):
    """One file whose bytes are read by range. Thread-safe; pickles as its address."""

    @property
    def name(self) -> str:
        """The path or URL, for messages."""

    def size(self) -> int:
        """Return the number of bytes in the file."""

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""


class LocalSource:
    """A file on a local disk, opened at the first read. Safe to use after a fork."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        self._handle: _Handle | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return os.fstat(self._opened().fd).st_size

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise VideoFileError."""
        handle = self._opened()
        content = os.pread(handle.fd, stop - start, start)
        if len(content) == stop - start:
            return content
        # A pread stops at 2 GiB and at a signal; only the end of the file is an error.
        parts = [content]
        while parts[-1] and (at := start + sum(map(len, parts))) < stop:
            parts.append(os.pread(handle.fd, stop - at, at))
        return _whole(b"".join(parts), start, stop, self.name)

    def __getstate__(self) -> str:
        return self.name

    def __setstate__(self, name: str) -> None:
        self.__init__(name)  # type: ignore[misc]

    def _opened(self) -> _Handle:
        # No lock, which a fork could leave held: of two handles made at once, one closes itself.
        handle = self._handle
        if handle is None:
            handle = self._handle = _Handle(self.name)
        return handle


class FsspecSource:
    """A file of an fsspec filesystem (Hub, S3, HTTPS, ...), read by range."""

    def __init__(self, fs: Any, path: str, *, name: str) -> None:
        self.name = name
        self._fs = fs
        self._path = path
        self._size: int | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        if self._size is None:
            with self._reaching():
                self._size = int(self._fs.info(self._path)["size"])
        return self._size

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise VideoFileError."""
        with self._reaching():
            content = self._read(start, stop)
        return _whole(content, start, stop, self.name)

    def _read(self, start: int, stop: int) -> bytes:
        content: bytes
        if getattr(self._fs, "async_impl", False):
            content = self._fs.cat_file(self._path, start=start, end=stop)
            return content
        # Others, the Hub's among them, would read a block of several megabytes ahead.
        with self._fs.open(self._path, "rb", cache_type="none") as file:
            file.seek(start)
            content = file.read(stop - start)
        return content

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            with as_connection_error():
                yield
        except FileNotFoundError as error:
            raise _missing(self.name) from error
        except PermissionError as error:
            raise PermissionError(f"{self.name}: {error}. Check the access keys.") from error
        except OSError as error:
            what = str(error) or type(error).__name__
            raise ConnectionError(f"{self.name}: {what}") from error


def open_source(location: Location, file: str) -> ByteSource:
    """Return the source of a file given relative to a location. Reads nothing yet."""
    if location.local_root is not None:
        return LocalSource(location.local_root / file)
    fs, path = location.filesystem()
    return FsspecSource(fs, f"{path}/{file}", name=location.describe(file))


class _Handle:
    """An open file that closes itself once the last reader lets go of it."""

    def __init__(self, path: str) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise _missing(path) from error
        weakref.finalize(self, os.close, self.fd)


def _missing(name: str) -> VideoFileError:
    return VideoFileError(
        f"{name}: want a video file, found nothing there. Download or copy the file, or check the "
        "dataset's root."
    )


def _whole(content: bytes, start: int, stop: int, name: str) -> bytes:
    if len(content) != stop - start:
        raise VideoFileError(
            f"{name}: wanted bytes {start} to {stop}, got {len(content)} of {stop - start}. The "
            "file is truncated; download or copy it again."
        )
    return content
