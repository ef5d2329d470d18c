# SPDX-License-Identifier: Apache-2.0
"""A remote file as a byte source: retried reads of one version of the file; with a cache."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from robostream import config
from robostream.errors import ChangedFileError, MissingFileError, StorageError
from robostream.storage.byte_source import ByteSource, check_length
from robostream.storage.cache import Cache
from robostream.storage.cached_file import CachedFile, open_cached_file
from robostream.storage.retry import Traffic, retry_policy

# The first request of a file that is likely small.
_START_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Bytes of a file as a server returned them."""

    content: bytes  # shorter than requested only at the end of the file
    size: int | None  # of the file; None if the server does not say
    version: str  # a text that changes with the file; empty if the server has none
    tag: str = ""  # the version by the server that sent the bytes, if a redirecting one has another


class RemoteFile(Protocol):
    """One file on a server; each call sends one request. No attribute holds secrets."""

    name: str  # the address, for messages
    identity: str  # a key that is unique to the file across all servers
    server: str  # the host, to which a rate limit applies

    def stat(self) -> FileChunk:
        """Return the size and version of the file, without bytes; or raise."""

    def fetch(self, start: int, stop: int) -> FileChunk:
        """Return the bytes [start, stop), fewer only at the end of the file; or raise."""


class RemoteSource(ByteSource):
    """A byte source over a remote file. Thread-safe.

    With a cache, it fetches what the cache lacks and keeps it there; of a file of at most
    `whole_bytes`, everything at the first read.
    """

    def __init__(
        self, file: RemoteFile, traffic: Traffic, cache: Cache | None, whole_bytes: int = 0
    ) -> None:
        self.name = file.name
        self.identity = file.identity
        self._file = file
        self._traffic = traffic
        self._retry = retry_policy(file.server, traffic)
        self._cache = cache
        self._cached: CachedFile | None = None
        self._known: FileChunk | None = None
        self._whole_bytes = whole_bytes
        self._first_look = threading.RLock()

    def without_cache(self) -> RemoteSource:
        """Return the same file, read without the cache."""
        source = RemoteSource(self._file, self._traffic, None)
        source.expect(self.size(), self.version())
        return source

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._stat().size or 0

    def version(self) -> str:
        """Return a text that changes with the file; empty if the server has none."""
        return self._stat().version

    def expect(self, size: int, version: str) -> None:
        """Set the file's size and version; raise if it is known to have others."""
        self._check(FileChunk(b"", size, version))

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        if stop <= start:
            return b""
        cached = self._fetch_small_file()
        self._traffic.add(bytes_read=stop - start)
        if cached is None or stop > cached.size_bytes:
            return self._fetch(start, stop)
        return cached.read(start, stop, self._fetch)

    def fetch_start(self) -> None:
        """Fetch the start of a file of unknown size into the cache; of most, that is all of it."""
        with self._first_look:
            if self._known is not None or self._cache is None or not self._whole_bytes:
                return
            content = self._send(lambda: self._file.fetch(0, _START_BYTES)).content
            cached = self._open_cached()
            if cached is not None:
                cached.fill(0, content, self._cache.next_use)

    def ensure_cached(self, start: int, stop: int) -> None:
        """Fetch what the cache lacks of [start, stop), with one request for each gap."""
        cached = self._fetch_small_file()
        if cached is not None:
            cached.ensure_cached(start, min(stop, cached.size_bytes), self._fetch)

    def prefetch(self, start: int, stop: int, next_use: float) -> None:
        """Keep [start, stop) available until `release`, if the cache may hold the file."""
        cached = self._fetch_small_file()
        if cached is not None:
            cached.prefetch(start, min(stop, cached.size_bytes), next_use, self._fetch)

    def release(self, start: int, stop: int, next_use: float) -> None:
        """Record that [start, stop) was read, and the time of its next use."""
        cached = self._open_cached()
        if cached is not None:
            cached.release(start, min(stop, cached.size_bytes), next_use)

    def kept_bytes(self) -> int:
        """Return how many bytes of the file the cache has."""
        cached = self._open_cached()
        if cached is None:
            return 0
        missing = cached.missing(0, cached.size_bytes)
        return cached.size_bytes - sum(stop - start for start, stop in missing)

    def _open_cached(self) -> CachedFile | None:
        """Return the file in the cache; None if it has no version or is too large to keep."""
        if self._cached is None and self._cache is not None:
            version, size = self.version(), self.size()
            if version and self._cache.may_hold(size):
                version = f"{version} of {self.identity}"  # other servers may use the same name
                self._cached = open_cached_file(self._cache, self.name, version, size)
        return self._cached

    def _fetch_small_file(self) -> CachedFile | None:
        """Return the file in the cache; fetch all of a small one, once."""
        cached = self._open_cached()
        if cached is not None and 0 < cached.size_bytes <= self._whole_bytes:
            cached.ensure_cached(0, cached.size_bytes, self._fetch)
            self._whole_bytes = 0
        return cached

    def _fetch(self, start: int, stop: int) -> bytes:
        content = self._send(lambda: self._file.fetch(start, stop)).content
        return check_length(content, start, stop, self.name)

    def _stat(self) -> FileChunk:
        with self._first_look:  # of several threads, one asks the server
            answer = self._known or self._send(self._file.stat)
            return self._known or answer  # with what a reader has learnt meanwhile

    def _send(self, send: Callable[[], FileChunk]) -> FileChunk:
        try:
            chunk = self._retry.call(send, self.name)
        except MissingFileError as error:
            if self._known is None:
                raise
            raise ChangedFileError(f"{error} It was there when it was opened.") from error
        self._traffic.add(bytes_fetched=len(chunk.content))
        self._check(chunk)
        return chunk

    def _check(self, chunk: FileChunk) -> None:
        """Remember the size and version of the first chunk; raise if a later one differs."""
        if chunk.size is None:
            raise StorageError(f"{self.name}: the server does not say how large the file is.")
        if chunk.size > config.MOST_REMOTE_FILE_BYTES:
            raise StorageError(
                f"{self.name}: the server says that the file has {chunk.size:,} bytes; want at "
                f"most {config.MOST_REMOTE_FILE_BYTES:,}. Check the file, or raise "
                "robostream.config.MOST_REMOTE_FILE_BYTES."
            )
        known = self._known
        if known is None:
            self._known = replace(chunk, content=b"")
            return
        # Some responses, to an empty range for example, lack a version or a tag.
        pairs = ((known.version, chunk.version), (known.tag, chunk.tag))
        if known.size != chunk.size or any(a and b and a != b for a, b in pairs):
            raise ChangedFileError(
                f"{self.name}: the file was changed while it was read: it had {known.size} bytes "
                f"and version {known.tag or known.version!r}, now it has {chunk.size} and "
                f"{chunk.tag or chunk.version!r}. Start the run again, or read a fixed revision."
            )
        if chunk.tag and not known.tag:
            self._known = replace(known, tag=chunk.tag)
