# SPDX-License-Identifier: Apache-2.0
"""An open writer's lock and threads, how they are released, and the errors of a recording."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import av

from robostream.byte_sizes import format_bytes
from robostream.errors import WriteError
from robostream.write.episode_buffer import EpisodeBuffer

logger = logging.getLogger(__name__)


class WriterLock:
    """The only writer's lock on a dataset; the system releases it even if the writer is killed."""

    def __init__(self, staging: Path) -> None:
        self._path = staging / "lock"
        self._process = os.getpid()
        self._fd = _acquire(self._path)

    @property
    def is_mine(self) -> bool:
        """Whether this process took the lock; a forked child only has a copy of it."""
        return os.getpid() == self._process

    def release(self) -> None:
        """Release the lock, and remove the staging folder if it is empty."""
        if self._fd < 0:
            return
        if self.is_mine:
            # Deleted while the lock is held. Another process may have opened the file already; once
            # it gets the lock, it notices the deletion and starts again.
            self._path.unlink(missing_ok=True)
            if not any(self._path.parent.iterdir()):
                self._path.parent.rmdir()
        self._close()

    def drop(self) -> None:
        """Release the lock as far as possible, without raising OSError."""
        with contextlib.suppress(OSError):
            self.release()
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OpenResources:
    """The lock, the open episode's encoders, and the thread that joins files.

    Args:
        lock: The writer's lock.
        new_buffer: Makes the buffer of an episode; must not refer to the writer.
    """

    def __init__(self, lock: WriterLock, new_buffer: Callable[[], EpisodeBuffer]) -> None:
        self.lock = lock
        self.buffer = new_buffer()
        self.joiner = ThreadPoolExecutor(1, thread_name_prefix="join")
        self._new_buffer = new_buffer
        self._joins: list[Future[None]] = []

    def reset_buffer(self) -> None:
        """Start an empty buffer for the next episode."""
        self.buffer = self._new_buffer()

    def submit_join(self, join: Callable[[], None]) -> None:
        """Run a join in the joining thread; a failure is logged."""
        future = self.joiner.submit(join)
        future.add_done_callback(_log_failure)
        self._joins = [*(other for other in self._joins if not other.done()), future]

    def release_dropped(self, root: Path) -> None:
        """Release everything when a writer is garbage-collected or the program ends.

        The garbage collector may call this in any thread at any moment, so it does not block.
        """
        if not self.lock.is_mine:  # in a forked child: encoders and joins belong to the parent
            self.lock.drop()
            return
        logger.warning(
            "%s: a writer was dropped without finalize(). Its saved episodes are safe; resume the "
            "dataset to bring them in. %d frames were not saved and are lost.",
            *(root, self.buffer.num_frames),
        )
        self.buffer.abandon()
        self.joiner.shutdown(wait=False, cancel_futures=True)
        running = [join for join in self._joins if not join.done()]
        if running:  # at most one; no other writer may begin before it ends
            running[0].add_done_callback(lambda _: self.lock.drop())
        else:
            self.lock.drop()


def _log_failure(join: Future[None]) -> None:
    if not join.cancelled() and (error := join.exception()):
        logger.warning(
            "joining saved episodes while recording failed; finalize() will try again: %s", error
        )


@contextlib.contextmanager
def wrap_errors(what: str, root: Path, *, cure: str) -> Iterator[None]:
    """Re-raise errors of the disk or an encoder as a WriteError that names what was written."""
    try:
        yield
    except WriteError:
        raise
    except (OSError, av.FFmpegError) as error:
        raise WriteError(
            f"{root}: writing {what} failed: {error}. {_describe_free_space(root)} "
            f"All episodes saved before are intact. {cure}"
        ) from error


def _describe_free_space(root: Path) -> str:
    try:
        return f"The disk has {format_bytes(shutil.disk_usage(root).free)} left."
    except OSError as error:
        return f"The folder cannot be reached ({error})."


def _acquire(path: Path) -> int:
    """Return the locked file's descriptor, or raise WriteError if another writer has the lock."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the last holder removed the folder in the meantime
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(fd, 1000).decode(errors="replace")
            os.close(fd)
            raise WriteError(_locked_message(path.parent.parent, holder)) from error
        if _is_current(fd, path):
            os.ftruncate(fd, 0)
            os.write(fd, _this_process().encode())
            return fd
        os.close(fd)


def _this_process() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"


def _locked_message(root: Path, holder: str) -> str:
    if holder == _this_process():
        return (
            f"{root}: this process ({holder}) has a writer open on this dataset already. Call its "
            "finalize(), or delete the last reference to it, then try again. After an error, the "
            "traceback may hold such a reference; a new process can always resume."
        )
    return (
        f"{root}: another writer ({holder or 'unknown process'}) is recording into this dataset. "
        "Wait until it has called finalize(), or stop it, then try again."
    )


def _is_current(fd: int, path: Path) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
