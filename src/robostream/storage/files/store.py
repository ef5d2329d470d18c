# SPDX-License-Identifier: Apache-2.0
"""What a store offers: the sizes of its files, and byte ranges of each."""

from __future__ import annotations

from typing import Protocol

from robostream.errors import DamagedFileError


class ByteSource(Protocol):
    """One file whose bytes are read by range. Thread-safe; pickles as its address.

    What goes wrong is a `StorageError` that begins with `name`.
    """

    @property
    def name(self) -> str:
        """The path or URL, for messages."""

    @property
    def identity(self) -> str:
        """What tells the file from all others, on any server; caches keep its bytes under it."""

    def size(self) -> int:
        """Return the number of bytes in the file."""

    def version(self) -> str:
        """Return a text that changes when the file does; empty where nothing tells."""

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version, as another process found them just now.

        A file that turns out to be another one is a ChangedFileError, here or at a later read.
        """

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""

    def bring(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) close by, where there is a place for it. Blocks."""


class Store(Protocol):
    """Files below one root, each known by its path relative to it, with slashes."""

    def open(self, file: str) -> ByteSource:
        """Return the bytes of a file. Reads nothing yet."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder; NoListingError where nobody can tell."""


def whole(content: bytes, start: int, stop: int, name: str) -> bytes:
    """Return what was read if it is as long as what was asked for, else raise."""
    if len(content) != stop - start:
        raise DamagedFileError(
            f"{name}: wanted bytes {start} to {stop}, got {len(content)} of {stop - start}. The "
            "file is truncated; download or copy it again."
        )
    return content
