# SPDX-License-Identifier: Apache-2.0
"""Files read by byte range: the protocol of a file, merged reads, a file object; local files."""

from __future__ import annotations

import bisect
import glob
import io
import itertools
import os
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from robostream.errors import (
    AccessDeniedError,
    ChangedFileError,
    DamagedFileError,
    MissingFileError,
    StorageError,
)
from robostream.storage.location import check_encodable

# Up to this many unwanted bytes cost less than another request.
MAX_GAP_BYTES = 64 * 1024
_MAX_READ_BYTES = 64 * 1024 * 1024

_FileState = tuple[int, int]  # size, and time of the last write in nanoseconds


class ByteSource(Protocol):
    """A file, read by byte range. Thread-safe. Its StorageErrors start with `name`."""

    name: str  # the path or URL
    identity: str  # a key that is unique to the file across all servers; caches use it

    def size(self) -> int:
        """Return the number of bytes in the file."""

    def version(self) -> str:
        """Return a text that changes with the file; empty if the server has none."""

    def expect(self, size: int, version: str) -> None:
        """Set the size and version another process found; a file that differs is an error."""

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""

    def fetch_start(self) -> None:
        """Fetch the start of a file that is likely small, if that saves a request for its size."""
        return

    def ensure_cached(self, start: int, stop: int) -> None:
        """Fetch the bytes [start, stop) into the cache, if there is one. Blocks."""
        return

    def prefetch(self, start: int, stop: int, next_use: float) -> None:
        """Keep [start, stop) until `release`, if there is a cache; see `CachedFile`. Blocks."""
        return

    def release(self, start: int, stop: int, next_use: float) -> None:
        """Record that the bytes [start, stop) were read, and the time of their next use."""
        return


def check_length(content: bytes, start: int, stop: int, name: str) -> bytes:
    """Return `content` if it has `stop - start` bytes, else raise DamagedFileError."""
    if len(content) != stop - start:
        raise DamagedFileError(
            f"{name}: wanted bytes {start} to {stop}, got {len(content)} of {stop - start}. The "
            "file is truncated; download or copy it again."
        )
    return content


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, stop) of one file."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"want 0 <= start < stop, got start={self.start}, stop={self.stop}")


def coalesce(
    ranges: Iterable[ByteRange], *, max_gap_bytes: int, max_read_bytes: int
) -> list[ByteRange]:
    """Return ascending reads that cover all `ranges`. Pure.

    Merges neighbours at most `max_gap_bytes` apart into reads of at most `max_read_bytes`; a
    single longer range stays whole.
    """
    reads: list[ByteRange] = []
    for wanted in sorted(ranges, key=lambda r: (r.start, r.stop)):
        if reads:
            last = reads[-1]
            stop = max(last.stop, wanted.stop)
            is_near = wanted.start - last.stop <= max_gap_bytes
            if wanted.stop <= last.stop or (is_near and stop - last.start <= max_read_bytes):
                reads[-1] = ByteRange(last.start, stop)
                continue
        reads.append(wanted)
    return reads


def choose_gap(ranges: Iterable[ByteRange], max_waste: float) -> int:
    """Return the widest gap for which `coalesce` adds at most a share of unwanted bytes. Pure."""
    reads = coalesce(ranges, max_gap_bytes=0, max_read_bytes=1 << 62)
    gaps = sorted(after.start - before.stop for before, after in itertools.pairwise(reads))
    left = int(max_waste * sum(read.stop - read.start for read in reads))
    for gap in gaps:
        left -= gap
        if left < 0:
            return gap - 1
    return gaps[-1] if gaps else 0


class SourceFile(io.RawIOBase):
    """A read-only, seekable file object over a byte source."""

    def __init__(self, source: ByteSource) -> None:
        self.name = source.name
        self._source = source
        self._size = source.size()
        self._at = 0
        self._loaded: list[tuple[int, bytes]] = []

    @contextmanager
    def preloaded(
        self, ranges: Iterable[ByteRange], *, max_gap_bytes: int = MAX_GAP_BYTES, requests: int = 1
    ) -> Iterator[None]:
        """Read ranges now, `requests` at a time, and serve reads in the block from them."""
        reads = coalesce(ranges, max_gap_bytes=max_gap_bytes, max_read_bytes=_MAX_READ_BYTES)
        with ThreadPoolExecutor(requests) as pool:
            read_all = map if requests == 1 else pool.map
            contents = read_all(lambda read: self._source.read(read.start, read.stop), reads)
            self._loaded = list(zip((read.start for read in reads), contents, strict=True))
        try:
            yield
        finally:
            self._loaded = []

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, which may lie beyond the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end of the file."""
        start, stop = self._at, self._size if size < 0 else min(self._size, self._at + size)
        if stop <= start:
            return b""
        self._at = stop
        before = bisect.bisect_right(self._loaded, start, key=lambda part: part[0])
        if before:
            begin, content = self._loaded[before - 1]
            if stop <= begin + len(content):
                return content[start - begin : stop - begin]
        return self._source.read(start, stop)


class LocalStore:
    """A folder. Symbolic links in it are followed: Hub snapshots consist of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, _FileState] = {}

    def open(self, file: str) -> LocalSource:
        """Return a file. Reads nothing yet."""
        return LocalSource(self._root / file, self._seen)

    def list_files(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        # Unlike pathlib, glob follows links: chunks may lie on several disks.
        found = glob.iglob(f"{glob.escape(folder)}/**/*", root_dir=self._root, recursive=True)
        files = ((name, self._root / name) for name in found)
        return {name: path.stat().st_size for name, path in files if path.is_file()}


class LocalSource(ByteSource):
    """A local file, opened at the first read. Safe to use after a fork.

    `seen` has the state of each file when it was first opened, by name. A file that has changed
    when it is opened again raises ChangedFileError.
    """

    def __init__(
        self, path: str | os.PathLike[str], seen: dict[str, _FileState] | None = None
    ) -> None:
        self.name = self.identity = os.fspath(path)
        self._seen = {} if seen is None else seen
        self._file: _LocalHandle | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._open().state[0]

    def version(self) -> str:
        """Return the time of the last write."""
        return str(self._open().state[1])

    def expect(self, size: int, version: str) -> None:
        """Raise unless the file has this size and version."""
        if (self.size(), self.version()) != (size, version):
            raise self._changed()

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        file, parts, at = self._open(), [], start
        try:
            # pread stops at 2 GiB and at a signal; only the end of the file is an error.
            while at < stop and (part := os.pread(file.fd, stop - at, at)):
                parts.append(part)
                at += len(part)
            # A writer changes the file's time before its bytes.
            now = _file_state(file.fd)
        except OSError as error:
            raise DamagedFileError(
                f"{self.name}: bytes {start} to {stop} cannot be read: {error}. Check the disk, "
                "and copy the file again."
            ) from error
        if now != file.state:
            raise self._changed()
        return check_length(b"".join(parts), start, stop, self.name)

    def __reduce__(self) -> tuple[type[LocalSource], tuple[str]]:
        return LocalSource, (self.name,)

    def _open(self) -> _LocalHandle:
        # No lock, which a fork could leave locked: of two files opened at once, one closes itself.
        file = self._file
        if file is None:
            file = _LocalHandle(self.name)
            if self._seen.setdefault(self.name, file.state) != file.state:
                raise self._changed()
            self._file = file
        return file

    def _changed(self) -> ChangedFileError:
        return ChangedFileError(
            f"{self.name}: the file was changed while the dataset was being read. Start the run "
            "again, or read a copy that nobody changes."
        )


def _file_state(fd: int) -> _FileState:
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns


class _LocalHandle:
    """An open file that closes itself with its last reader."""

    def __init__(self, path: str) -> None:
        check_encodable(path)
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(
                f"{path}: there is no such file. Download or copy it, or check the dataset's root."
            ) from error
        except PermissionError as error:
            raise AccessDeniedError(f"{path}: {error.strerror}. Check who may read it.") from error
        except OSError as error:
            # Too many open files, for example: the file itself is fine.
            raise StorageError(f"{path}: cannot be opened: {error.strerror}.") from error
        weakref.finalize(self, os.close, self.fd)
        self.state = _file_state(self.fd)
