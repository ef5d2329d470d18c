# SPDX-License-Identifier: Apache-2.0
"""The folder of a cache: made or recognised by its mark, refused if it is anything else.

robostream-cache.json   the mark: format, version, bytes of a block
lock                    whoever writes, counts or deletes holds it; inside, the bytes in use
blocks/                 one file for each remote file and version (layout.py)
files/                  whole files that processes map, such as decoded rows (whole_file.py)
leases/                 one locked file for each process that said what it will read (lease.py)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from robostream.errors import CacheError
from robostream.storage.cache.layout import is_block_size
from robostream.storage.files.atomic import write_private_once
from robostream.storage.files.private import make_private_folder, make_subfolder, open_private

MARK = "robostream-cache.json"
_FORMAT = "robostream cache"
_VERSION = 1
_MOST_MARK_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the parts of a cache lie."""

    path: Path
    block_bytes: int

    @property
    def lock(self) -> Path:
        """The file whose lock one holds to write."""
        return self.path / "lock"

    @property
    def blocks(self) -> Path:
        """The folder of blocks."""
        return self.path / "blocks"

    @property
    def files(self) -> Path:
        """The folder of whole files."""
        return self.path / "files"

    @property
    def leases(self) -> Path:
        """The folder of leases."""
        return self.path / "leases"

    def is_writable(self) -> bool:
        """Return whether this user may write to it: not to a read-only mount, say."""
        places = (self.path, self.blocks, self.files, self.leases)
        lock = (self.lock,) if os.path.exists(self.lock) else ()
        return all(os.access(place, os.W_OK) for place in (*places, *lock))


def open_folder(path: Path, block_bytes: int) -> Folder:
    """Return a cache's folder, made now if there is none; the size of blocks is the folder's own.

    Raises CacheError for a folder that has something else in it: a cache deletes files, so it does
    not move in with others.
    """
    make_private_folder(path)
    if not (path / MARK).exists():
        _refuse_strangers(path)
        _write_mark(path, block_bytes)
    folder = Folder(path, _read_mark(path))
    for part in (folder.blocks, folder.files, folder.leases):
        make_subfolder(part)
    return folder


def is_cache(path: Path) -> bool:
    """Return whether a folder is a cache's."""
    return (path / MARK).is_file()


def _refuse_strangers(path: Path) -> None:
    # Another process may be making the same cache: its mark, still being written, is no stranger.
    strangers = sorted(name for name in os.listdir(path) if not name.startswith(f".{MARK}."))
    if strangers and not (path / MARK).exists():
        raise CacheError(
            f"{path}: want a new or empty folder for the cache, or one that robostream made; found "
            f"{', '.join(strangers[:3])}{' and more' if len(strangers) > 3 else ''}. A cache "
            "deletes files to keep to its limit, so give it a folder of its own."
        )


def _write_mark(path: Path, block_bytes: int) -> None:
    """Write the mark so that it is there whole, also after a power cut, before anything else."""
    content = {"format": _FORMAT, "version": _VERSION, "block_bytes": block_bytes}
    # If another process is first, its size of blocks holds.
    write_private_once(path / MARK, json.dumps(content).encode())


def _read_mark(path: Path) -> int:
    with open(open_private(path / MARK, os.O_RDONLY), errors="replace") as file:
        text = file.read(_MOST_MARK_CHARACTERS)
    try:
        mark = json.loads(text)
        is_ours = (mark["format"], mark["version"]) == (_FORMAT, _VERSION)
        block_bytes = int(mark["block_bytes"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        is_ours, block_bytes = False, 0
    if not is_ours or not is_block_size(block_bytes):
        raise CacheError(
            f"{path / MARK}: want the mark of a {_FORMAT} of version {_VERSION}, found "
            f"{text[:80]!r}. Another version of robostream made this folder; choose another, or "
            "delete it."
        )
    return block_bytes
