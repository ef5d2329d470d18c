# SPDX-License-Identifier: Apache-2.0
"""The memory or file that keeps all decoded frames of a selection.

A file on a fast disk serves all ranks of a machine. Its name identifies its content and the boot
of the machine: processes see each other's writes to a mapped file in order, even after a kill, but
only until the machine restarts. So a file of an earlier boot is not used.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from robostream import arguments, config
from robostream.assemble import SourceLayout
from robostream.byte_sizes import format_bytes
from robostream.decode import SharedFrameLayout
from robostream.device import create_memory
from robostream.errors import SelectionError, StorageError
from robostream.storage import make_private_folder, open_private

_FORMAT = "checksums"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def check_folder(folder: str | Path) -> None:
    """Raise SelectionError if there is a file where the folder, or one above it, should be."""
    arguments.path(folder, "frame_cache_dir")
    try:
        path = Path(folder).expanduser()
        nearest = next((p for p in (path, *path.parents) if os.path.lexists(p)), path)
        fault = f"{nearest} is a file" if os.path.isfile(nearest) else ""
    except (RuntimeError, ValueError) as error:  # an unknown user's home; a zero byte in the name
        fault = str(error)
    if fault:
        raise SelectionError(
            "frame_cache_dir must be a folder on a fast disk, existing or new; got "
            f"{str(folder)!r}: {fault}"
        )


def prepare_frame_memory(
    sources: Sequence[SourceLayout], shared: SharedFrameLayout, folder: str | Path | None
) -> Callable[[], int]:
    """Return a function that returns a descriptor of the memory, or file, for all decoded frames.

    The file is opened at once, which may take a while; memory is created by the function.
    """
    if folder is None:
        return functools.partial(create_memory, shared.nbytes)
    content = json.dumps(
        [
            value
            for s in sources
            for value in (s.dataset.meta.fingerprint, _video_versions(s, shared))
        ]
    )
    fd = open_frame_file(Path(folder).expanduser(), shared, content)
    return lambda: fd


def _video_versions(source: SourceLayout, shared: SharedFrameLayout) -> list[tuple[str, int, str]]:
    """Return identity, size and version of a dataset's videos whose frames are kept.

    Two recordings may have the same fingerprint and different frames.
    """
    meta, opener = source.dataset.meta, source.dataset.file_opener()
    kept = [c for c, nbytes in zip(source.cameras, shared.slot_bytes, strict=True) if c and nbytes]
    cameras = [camera.key for camera in kept if camera.key in source.dataset.spec.videos]
    episodes = source.dataset.selection.episodes.tolist()
    files = {meta.get_video_file_path(e, key).as_posix() for e in episodes for key in cameras}

    def version(file: str) -> tuple[str, int, str]:
        try:
            source = opener.open(file)
            return source.identity, source.size(), source.version()
        except StorageError:  # decoding it reports the error
            return file, -1, ""

    with ThreadPoolExecutor(config.WARM_REQUESTS) as pool:
        return list(pool.map(version, sorted(files)))


def open_frame_file(folder: Path, shared: SharedFrameLayout, dataset: str) -> int:
    """Return a descriptor of the file, created if missing, with its space reserved.

    `dataset` is a text that no other dataset has. Without reserved space, a disk that fills up
    later would kill the processes that write to the file.
    """
    digest = hashlib.sha256(dataset.encode())
    digest.update(shared.episodes.tobytes())
    digest.update(repr((shared.cameras, shared.sizes, shared.slot_bytes, _FORMAT)).encode())
    name = f"robostream-frames-{digest.hexdigest()[:24]}"
    path = folder / f"{name}-{_boot_id()}"
    try:
        make_private_folder(folder)
        fd = open_private(path, os.O_RDWR | os.O_CREAT, may_share=False)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise _cannot_open(folder, shared.nbytes, error) from error
    try:
        with _locked(fd):
            if os.fstat(fd).st_size != shared.nbytes:
                _reserve(fd, shared.nbytes, path)
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
        raise _cannot_open(path.parent, nbytes, error) from error


def _cannot_open(folder: Path, nbytes: int, error: Exception) -> SelectionError:
    reason = error.strerror if isinstance(error, OSError) else error
    return SelectionError(
        f"frame_cache_dir={str(folder)!r}: {reason}; the decoded frames of this selection take "
        f"{format_bytes(nbytes)}. Choose another disk, fewer episodes or cameras, or leave "
        "frame_cache_dir out."
    )


@contextmanager
def _locked(fd: int) -> Iterator[None]:
    fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return "unknown"
