# SPDX-License-Identifier: Apache-2.0
"""The staging folder in which a copy grows, so that an interrupted run can resume.

COPY.recoding/
  recode.json   the source dataset and the encoding; locked while a run uses the folder
  dataset/      the copy; every file in it is complete, except those named *.part
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from robostream.errors import WriteError
from robostream.storage import sync_to_disk

# Linux: let a new file share the blocks of another until one of them is written to (Btrfs, XFS).
_FICLONE = 0x40049409


@contextmanager
def staging_folder(copy: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a folder for the copy's files; it becomes `copy` if the block ends without an error.

    After an error or a kill, it stays. The next run with an equal `record` continues with it.

    Raises:
        WriteError: Another run is using the folder, or an unfinished run had another `record`.
    """
    staging = copy.with_name(f"{copy.name}.recoding")
    staging.mkdir(parents=True, exist_ok=True)
    with _locked(staging / "recode.json") as file:
        _check_record(file, record, staging)
        dataset = staging / "dataset"
        dataset.mkdir(exist_ok=True)
        for part in dataset.rglob("*.part"):
            part.unlink()
        yield dataset
        for folder, _, _ in os.walk(dataset):
            sync_to_disk(Path(folder))
        os.rename(dataset, copy)
        sync_to_disk(copy.parent)
        shutil.rmtree(staging)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    except BlockingIOError as error:
        raise WriteError(
            f"{path.parent}: another run is using this folder. Wait for it, or stop it."
        ) from error
    finally:
        os.close(handle)


def _check_record(file: int, record: Mapping[str, Any], staging: Path) -> None:
    """Write the record to a new folder; raise WriteError if the folder has a different one."""
    found = os.pread(file, 1 << 16, 0).decode(errors="replace")
    wanted = json.dumps(record, indent=4)
    if found and found != wanted:
        raise WriteError(
            f"{staging}: an unfinished copy is here, begun with {' '.join(found.split())}; want "
            f"{' '.join(wanted.split())}. Delete this folder, or repeat the earlier command."
        )
    os.pwrite(file, wanted.encode(), 0)
    os.fsync(file)


def copy_cheaply(source: Path, target: Path, *, link: bool) -> str:
    """Copy a file without writing its bytes again where possible.

    Returns "cloned", "linked" or "copied". With `link`, a hard link is made where the disk cannot
    clone: one file under two names, so editing one changes both.
    """
    source = source.resolve()  # a Hub snapshot is full of symbolic links
    target.parent.mkdir(parents=True, exist_ok=True)
    if _clone(source, target):
        return "cloned"
    if link:
        with suppress(OSError):  # another disk, or one without links
            os.link(source, target)
            return "linked"
    return copy_durably(source, target)


def copy_durably(source: Path, target: Path) -> str:
    """Copy a file's bytes, wait until they are on disk, and return "copied"."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    sync_to_disk(target)
    return "copied"


def _clone(source: Path, target: Path) -> bool:
    try:
        with open(source, "rb") as original, open(target, "wb") as copy:
            fcntl.ioctl(copy, _FICLONE, original.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return False
    sync_to_disk(target)
    return True
