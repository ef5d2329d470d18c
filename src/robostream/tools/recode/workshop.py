# SPDX-License-Identifier: Apache-2.0
"""The folder aside in which a copy grows, so that an interrupted run can go on.

COPY.recoding/
  recode.json   of which dataset, and how it is encoded; locked by the run at work
  dataset/      the copy; every file in it is whole, but for names that end in .part
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robostream.errors import WriteError
from robostream.storage import sync_to_disk


@contextmanager
def workshop(copy: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """Give the folder for the copy's files; it becomes `copy` when the block ends without an error.

    After an error, or a kill, it stays. The next run with an equal `record` gets it as it is.

    Raises:
        WriteError: Another run is at work there, or an unfinished one wanted something else.
    """
    aside = copy.with_name(f"{copy.name}.recoding")
    aside.mkdir(parents=True, exist_ok=True)
    with _locked(aside / "recode.json") as file:
        _agree(file, record, aside)
        dataset = aside / "dataset"
        dataset.mkdir(exist_ok=True)
        for part in dataset.rglob("*.part"):
            part.unlink()
        yield dataset
        for folder, _, _ in os.walk(dataset):
            sync_to_disk(Path(folder))
        os.rename(dataset, copy)
        sync_to_disk(copy.parent)
        shutil.rmtree(aside)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    except BlockingIOError as error:
        raise WriteError(
            f"{path.parent}: another run is at work on this copy. Wait for it, or stop it."
        ) from error
    finally:
        os.close(handle)


def _agree(file: int, record: Mapping[str, Any], aside: Path) -> None:
    """Write down what is made here; raise WriteError if something else was begun here."""
    found = os.pread(file, 1 << 16, 0).decode(errors="replace")
    wanted = json.dumps(record, indent=4)
    if found and found != wanted:
        raise WriteError(
            f"{aside}: an unfinished copy is here, begun with {' '.join(found.split())}; want "
            f"{' '.join(wanted.split())}. Delete this folder, or run the command as it was."
        )
    os.pwrite(file, wanted.encode(), 0)
    os.fsync(file)
