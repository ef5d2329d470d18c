# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file: asked for until they are answered, of one version only."""

from __future__ import annotations

from typing import Protocol

from robostream.errors import ChangedFileError, MissingFileError, StorageError
from robostream.storage.files.store import whole
from robostream.storage.remote.answers import Part
from robostream.storage.remote.retry import Asking


class RemoteFile(Protocol):
    """One file on a server, asked once at a time."""

    @property
    def name(self) -> str:
        """The address without secrets, for messages."""

    @property
    def server(self) -> str:
        """The host, which may limit how often it is asked."""

    def ask(self, start: int, stop: int) -> Part:
        """Return the bytes [start, stop), fewer only at the end of the file, or raise."""


class RemoteSource:
    """A byte source over a remote file. Thread-safe."""

    def __init__(self, file: RemoteFile, asking: Asking) -> None:
        self.name = file.name
        self._file = file
        self._asking = asking
        self._known: tuple[int, str] | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._seen()[0]

    def version(self) -> str:
        """Return a text that changes when the file does; empty where nothing tells."""
        return self._seen()[1]

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        if stop <= start:
            return b""
        content = self._ask(start, stop).content
        self._asking.traffic.add(bytes_needed=stop - start)
        return whole(content, start, stop, self.name)

    def _seen(self) -> tuple[int, str]:
        if self._known is None:
            self._ask(0, 1)
        assert self._known is not None
        return self._known

    def _ask(self, start: int, stop: int) -> Part:
        try:
            part = self._asking.until_answered(lambda: self._file.ask(start, stop), self.name)
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
        if self._known is None:
            self._known = part.size, part.version
        # Some answers, that of an empty range say, do not tell the version.
        found = part.size, part.version or self._known[1]
        if self._known != found:
            raise ChangedFileError(
                f"{self.name}: the file was changed while it was read: it had {self._known[0]} "
                f"bytes and version {self._known[1]!r}, now it has {found[0]} and {found[1]!r}. "
                "Begin the run anew, or read a revision that stays as it is."
            )
