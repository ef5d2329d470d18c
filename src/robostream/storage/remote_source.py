# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file: asked for until they are answered, of one version only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from robostream import config
from robostream.errors import ChangedFileError, MissingFileError, StorageError
from robostream.storage.byte_source import whole
from robostream.storage.http_file import Part
from robostream.storage.retry import Retrying


class RemoteFile(Protocol):
    """One file on a server, asked once at a time."""

    @property
    def name(self) -> str:
        """The address without secrets, for messages."""

    @property
    def identity(self) -> str:
        """What tells the file from all others, on any server; holds no secrets."""

    @property
    def server(self) -> str:
        """The host, which may limit how often it is asked."""

    def look(self) -> Part:
        """Return the size and version of the file, without its bytes; or raise."""

    def ask(self, start: int, stop: int) -> Part:
        """Return the bytes [start, stop), fewer only at the end of the file; or raise."""


class RemoteSource:
    """A byte source over a remote file. Thread-safe.

    Attributes:
        traffic: Counts what is read.
    """

    def __init__(self, file: RemoteFile, retrying: Retrying) -> None:
        self.name = file.name
        self.identity = file.identity
        self.traffic = retrying.traffic
        self._file = file
        self._asking = retrying
        self._known: Part | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._seen().size or 0

    def version(self) -> str:
        """Return a text that changes when the file does; empty where nothing tells."""
        return self._seen().version

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version; raise if it is known to have others."""
        self._note(Part(b"", size, version))

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        if stop <= start:
            return b""
        self._asking.traffic.add(bytes_read=stop - start)
        return self.fetch(start, stop)

    def bring(self, start: int, stop: int) -> None:
        """Do nothing: there is no place to have bytes close by."""

    def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop) from the server, for somebody who keeps them."""
        content = self._ask(lambda: self._file.ask(start, stop)).content
        return whole(content, start, stop, self.name)

    def _seen(self) -> Part:
        if self._known is None:
            self._ask(self._file.look)
        assert self._known is not None
        return self._known

    def _ask(self, ask: Callable[[], Part]) -> Part:
        try:
            part = self._asking.until_answered(ask, self.name)
        except MissingFileError as error:
            if self._known is None:
                raise
            raise ChangedFileError(f"{error} It was there when it was opened.") from error
        self._asking.traffic.add(bytes_fetched=len(part.content))
        self._note(part)
        return part

    def _note(self, part: Part) -> None:
        if part.size is None:
            raise StorageError(f"{self.name}: the server does not say how large the file is.")
        if part.size > config.MOST_REMOTE_FILE_BYTES:
            raise StorageError(
                f"{self.name}: the server says that the file has {part.size:,} bytes; want at most "
                f"{config.MOST_REMOTE_FILE_BYTES:,}. Check the file, or raise "
                "robostream.config.MOST_REMOTE_FILE_BYTES."
            )
        known = self._known
        if known is None:
            self._known = replace(part, content=b"")
            return
        if known.size != part.size or _differ(known.version, part.version, known.tag, part.tag):
            raise ChangedFileError(
                f"{self.name}: the file was changed while it was read: it had {known.size} bytes "
                f"and version {known.tag or known.version!r}, now it has {part.size} and "
                f"{part.tag or part.version!r}. Begin the run anew, or read a revision that stays "
                "as it is."
            )
        if part.tag and not known.tag:
            # Who named the version has no such tag: from here on this one must stay.
            self._known = replace(known, tag=part.tag)


def _differ(*pairs: str) -> bool:
    """Return whether two texts of a pair differ; some answers, to an empty range say, lack them."""
    return any(a and b and a != b for a, b in zip(pairs[::2], pairs[1::2], strict=True))
