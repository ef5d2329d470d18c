# SPDX-License-Identifier: Apache-2.0
"""The one door to bytes: from a location to its store, from there to a file."""

from __future__ import annotations

from robostream.storage.fsspec_store import FsspecStore
from robostream.storage.local_store import LocalStore
from robostream.storage.location import Location
from robostream.storage.store import ByteSource, Store


def open_store(location: Location) -> Store:
    """Return the store of a location."""
    if location.local_root is not None:
        return LocalStore(location.local_root)
    return FsspecStore(location)


def open_source(location: Location, file: str) -> ByteSource:
    """Return the bytes of a file given relative to a location. Reads nothing yet."""
    return open_store(location).open(file)


def read_whole(location: Location, file: str) -> bytes:
    """Return all bytes of a small file."""
    source = open_source(location, file)
    return source.read(0, source.size())


def list_files(location: Location, folder: str, suffix: str) -> dict[str, int]:
    """Return the size of each file below a folder that ends so, by its relative path, sorted."""
    sizes = open_store(location).sizes(folder)
    return {file: sizes[file] for file in sorted(sizes) if file.endswith(suffix)}
