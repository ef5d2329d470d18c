# SPDX-License-Identifier: Apache-2.0
"""Copies of a local dataset: the folders, and staging, so that an interrupted run can resume.

COPY.recoding/ or COPY.converting/
  run.json   the source dataset and the options; locked while a run uses the folder
  dataset/   the copy; every file in it is complete, except those named *.part
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import av

from robostream.errors import RobostreamError, WriteError
from robostream.storage import parse_repo_url, redact, sync_to_disk, write_bytes_atomic
from robostream.write import describe_free_space, move_durably

# Linux: let a new file share the blocks of another until one of them is written to (Btrfs, XFS).
_FICLONE = 0x40049409


def check_folders(root: str | Path, copy: str | Path) -> tuple[Path, Path]:
    """Return the folders of a local dataset and of its copy; raise WriteError if one is unsuitable.

    The dataset must be on this machine; the copy must not exist, nor lie in the dataset.
    """
    source, target = _local_folder(str(root)), Path(copy).expanduser().absolute()
    if os.path.lexists(target):  # a link that leads nowhere too
        raise WriteError(
            f"{target}: want a new folder for the copy, found one that exists. Choose another, or "
            "remove it."
        )
    if target.resolve().is_relative_to(source):
        raise WriteError(
            f"{target}: want a folder outside the dataset {source}, found one inside it. Choose "
            "another."
        )
    return source, target


def _local_folder(root: str) -> Path:
    """Return the folder of a dataset on this machine; the error says how to download one."""
    folder = Path(root).expanduser()
    if "://" not in root and folder.is_dir():
        return folder.resolve()
    parsed = parse_repo_url(root)
    name = parsed[0] if parsed else root
    is_hub_name = parsed is not None or ("://" not in root and root.count("/") == 1)
    cure = (
        f"If it is a dataset on the Hub, download it first: hf download {name} --repo-type "
        "dataset --local-dir FOLDER"
        if is_hub_name and not root.startswith((".", "/", "~"))
        else "Download a remote dataset first, and give its folder."
    )
    raise WriteError(f"{redact(root)}: want a folder on this machine with a dataset in it. {cure}")


def visible_files(root: Path) -> Iterator[str]:
    """Yield the files below a folder, without hidden ones (a recorder's, git's, a download's).

    Follows links, but not to folders that are already listed.
    """
    seen = {root.resolve()}
    for folder, folders, names in os.walk(root, followlinks=True):
        places = {name: Path(folder, name).resolve() for name in folders}
        folders[:] = sorted(n for n in folders if n[0] != "." and places[n] not in seen)
        seen.update(places[name] for name in folders)
        below = PurePosixPath(Path(folder).relative_to(root))
        yield from (str(below / name) for name in sorted(names) if not name.startswith("."))


@contextmanager
def staging_folder(copy: Path, record: Mapping[str, Any], *, doing: str) -> Iterator[Path]:
    """Yield a folder for the copy's files; it becomes `copy` if the block ends without an error.

    After an error or a kill, it stays, as `copy` with the ending `doing`. The next run with an
    equal `record` continues with it. Raises WriteError if another run is using the folder, an
    unfinished run had another record, the folder has files of no run, or the disk fails.
    """
    staging = copy.with_name(f"{copy.name}.{doing}")
    try:
        staging.mkdir(parents=True, exist_ok=True)
        with _claimed(staging, record):
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
    except OSError as error:
        if isinstance(error, RobostreamError):
            raise
        raise WriteError(
            f"cannot make a copy in {copy}: {error}. Free space, or choose another folder."
        ) from error


@contextmanager
def _claimed(staging: Path, record: Mapping[str, Any]) -> Iterator[None]:
    """Lock a staging folder that is new or was begun with an equal record."""
    path = staging / "run.json"
    is_ours = path.exists() and path.stat().st_size > 0
    if not is_ours and set(os.listdir(staging)) - {path.name}:
        raise WriteError(
            f"{staging}: want no folder, or that of an unfinished copy, found one with other "
            "files. Choose another destination, or move this folder."
        )
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        wanted = json.dumps(record, indent=4)
        found = os.pread(file, 1 << 16, 0).decode(errors="replace")
        if found and found != wanted:
            raise WriteError(
                f"{staging}: an unfinished copy is here, begun with {' '.join(found.split())}; "
                f"want {' '.join(wanted.split())}. Delete this folder, or repeat the earlier "
                "command."
            )
        os.pwrite(file, wanted.encode(), 0)
        os.fsync(file)
        yield
    except BlockingIOError as error:
        raise WriteError(
            f"{staging}: another run is using this folder. Wait for it, or stop it."
        ) from error
    finally:
        os.close(file)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to; the file becomes `target` if the block ends without an error.

    Raises WriteError if the disk or an encoder fails.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield part
        move_durably(part, target)
    except (OSError, av.FFmpegError) as error:
        if isinstance(error, RobostreamError):
            raise
        raise WriteError(
            f"{target}: cannot be written: {error}. {describe_free_space(target.parent)} Finished "
            "files are kept: run the same command again to continue with the others."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def save_result(path: Path, content: bytes, *, what: str = "") -> None:
    """Write a file, whole or not at all; an error says `what` cannot be written."""
    try:
        write_bytes_atomic(path, content)
    except OSError as error:
        raise WriteError(
            f"cannot write {what}{path}: {error.strerror}. Choose another file, or free space."
        ) from error


def copy_cheaply(source: Path, target: Path, *, link: bool) -> str:
    """Copy a file without writing its bytes again where possible, and return how.

    "cloned", or "linked" with `link` where the disk cannot clone: one file under two names, so
    editing one changes both. Else "copied". Blocks until the file is on disk.
    """
    source = source.resolve()  # a Hub snapshot is full of symbolic links
    target.parent.mkdir(parents=True, exist_ok=True)
    how = "cloned"
    try:
        with open(source, "rb") as original, open(target, "wb") as copy:
            fcntl.ioctl(copy, _FICLONE, original.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        if link:
            with suppress(OSError):  # another disk, or one without links
                os.link(source, target)
                return "linked"
        how = "copied"
        shutil.copyfile(source, target)
    sync_to_disk(target)
    return how
