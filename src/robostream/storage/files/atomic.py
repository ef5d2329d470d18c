# SPDX-License-Identifier: Apache-2.0
"""Writing a file so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from robostream.storage.files.private import make_private_folder, open_private


def write_bytes_atomic(path: Path, content: bytes, *, is_private: bool = False) -> None:
    """Write aside, sync to disk, rename over `path`, sync the folder; leaves no part behind.

    A private file has the mode of `open_private`; otherwise the process's umask decides.
    """
    with _written_aside(path, content, is_private) as aside:
        os.replace(aside, path)
    sync_to_disk(path.parent)


def write_private_once(path: Path, content: bytes) -> None:
    """Write a private file unless it exists: of several processes that do, the first wins."""
    with _written_aside(path, content, True) as aside, suppress(FileExistsError):
        os.link(aside, path)
    sync_to_disk(path.parent)


def sync_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _written_aside(path: Path, content: bytes, is_private: bool) -> Iterator[Path]:
    """Yield a file beside `path` whose content is on disk; it is gone after the block."""
    if is_private:
        make_private_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(aside, "xb", opener=_open_private if is_private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return open_private(Path(path), flags)
