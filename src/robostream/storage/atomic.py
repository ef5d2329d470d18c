# SPDX-License-Identifier: Apache-2.0
"""Writing a file so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_bytes_atomic(path: Path, content: bytes) -> None:
    """Write aside, sync to disk, rename over `path`, sync the folder; leaves no part behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(aside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
