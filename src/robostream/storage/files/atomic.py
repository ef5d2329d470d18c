# SPDX-License-Identifier: Apache-2.0
"""Writing a file so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_bytes_atomic(path: Path, content: bytes) -> None:
    """Write aside, sync to disk, rename over `path`, sync the folder; leaves no part behind."""
    with _written_aside(path, content) as aside:
        os.replace(aside, path)
    sync_to_disk(path.parent)


def write_bytes_once(path: Path, content: bytes) -> None:
    """Do the same unless the file exists: of several processes that write it, the first wins."""
    with _written_aside(path, content) as aside, suppress(FileExistsError):
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
def _written_aside(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a file beside `path` whose content is on disk; it is gone after the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(aside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)
