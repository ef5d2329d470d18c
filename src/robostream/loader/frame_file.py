# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures of a selection in a file on a fast disk, shared by the ranks of a machine.

The file's name says what it holds and since when the machine runs. What processes write into a
mapped file is seen by all others in the order it was written, also if one is killed, as long as the
machine runs; after a restart it may not be, so a file of an earlier start is not used again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robostream import arguments
from robostream.batches import SharedFrameLayout
from robostream.byte_sizes import format_bytes
from robostream.errors import SelectionError
from robostream.storage import make_private_folder, open_private

_FORMAT = "checksums"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def check_folder(folder: str | Path) -> None:
    """Raise SelectionError if there is a file where the folder, or one above it, should be."""
    arguments.path(folder, "frame_cache_dir")
    try:
        path = Path(folder).expanduser()
        nearest = next((place for place in (path, *path.parents) if os.path.lexists(place)), path)
        fault = f"{nearest} is a file" if os.path.isfile(nearest) else ""
    except (RuntimeError, ValueError) as error:  # a home of nobody; a zero byte in the name
        fault = str(error)
    if fault:
        raise SelectionError(
            "frame_cache_dir must be a folder on a fast disk, there or to be made; got "
            f"{str(folder)!r}: {fault}"
        )


def open_frame_file(folder: Path, shape: SharedFrameLayout, dataset: str) -> int:
    """Return a descriptor of the file, made now if it is not there; its space is reserved.

    `dataset` is a text that no other dataset has. A disk that filled up later would kill the
    processes that write to the file.
    """
    digest = hashlib.sha256(dataset.encode())
    digest.update(shape.episodes.tobytes())
    digest.update(repr((shape.cameras, shape.sizes, shape.slot_bytes, _FORMAT)).encode())
    name = f"robostream-frames-{digest.hexdigest()[:24]}"
    path = folder / f"{name}-{_since_when()}"
    try:
        make_private_folder(folder)
        fd = open_private(path, os.O_RDWR | os.O_CREAT, may_share=False)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise _refused(folder, shape.nbytes, error) from error
    try:
        with _alone(fd):
            if os.fstat(fd).st_size != shape.nbytes:
                _reserve(fd, shape.nbytes, path)
            for other in folder.glob(f"{name}-*"):
                if other != path:
                    other.unlink(missing_ok=True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _reserve(fd: int, nbytes: int, path: Path) -> None:
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        os.ftruncate(fd, 0)
        path.unlink(missing_ok=True)
        raise _refused(path.parent, nbytes, error) from error


def _refused(folder: Path, nbytes: int, error: Exception) -> SelectionError:
    reason = error.strerror if isinstance(error, OSError) else error
    return SelectionError(
        f"frame_cache_dir={str(folder)!r}: {reason}; the decoded pictures of this "
        f"selection take {format_bytes(nbytes)}. Choose another disk, fewer episodes or "
        "cameras, or leave frame_cache_dir out."
    )


@contextmanager
def _alone(fd: int) -> Iterator[None]:
    fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _since_when() -> str:
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return "unknown"
