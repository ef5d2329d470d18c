# SPDX-License-Identifier: Apache-2.0
"""Every error robostream raises on purpose.

RobostreamError
├── DatasetError                        the dataset is not what the format says
│   ├── MetadataError                   meta/ is missing, broken or contradicts itself
│   ├── CompatibilityError              a codebase_version this reader cannot read
│   │   ├── BackwardCompatibilityError
│   │   └── ForwardCompatibilityError
│   ├── DataFileError                   Parquet missing, truncated, or not matching meta/
│   └── VideoFileError                  an MP4 is missing, truncated, or not a video
│       └── FrameTimestampError         no frame within the tolerance of the wanted time
├── StorageError                        bytes of a file or an address cannot be read
│   ├── MissingFileError                there is no such file
│   │   └── MissingRevisionError        the Hub has the dataset, but not this revision of it
│   ├── DamagedFileError                a file is shorter than it was, or its disk fails
│   ├── ChangedFileError                a file is not the one that was opened
│   │   └── ReplacedFileError           so is one whose server gives no version; it is read again
│   ├── AccessDeniedError               the store wants to know who asks
│   ├── UnreachableError                the network, or the server, gave no answer
│   └── NoListingError                  the store cannot say which files it has
├── CacheError                          a folder that is no cache of this version
├── SelectionError                      arguments, episodes or keys that cannot be served
├── FrameError                          a frame given to the writer is of the wrong shape
├── WriteError                          writing failed; what was saved before is intact
│   └── EncoderStalledError             a video encoder stopped answering
├── StateError                          a saved state that belongs to other data or another order
├── ModeError                           reading while writing, or the reverse
├── WorkerError                         a loader's worker process died
└── MissingExtraError                   an optional dependency is not installed

Most of them are also one of Python's own errors, so that code that catches ValueError, OSError or
ImportError catches them too.
A message says what was wanted, what was found, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class RobostreamError(Exception):
    """The base of all errors robostream raises on purpose."""


class DatasetError(RobostreamError):
    """The dataset is not what the format says."""


class MetadataError(DatasetError, ValueError):
    """A file under meta/ is missing, broken or contradicts another."""


class CompatibilityError(DatasetError):
    """The dataset has a codebase_version this reader cannot read."""


class BackwardCompatibilityError(CompatibilityError):
    """The dataset has an older format than this reader can read."""


class ForwardCompatibilityError(CompatibilityError):
    """The dataset has a newer format than this reader can read."""


class DataFileError(DatasetError, ValueError):
    """A Parquet file is missing, truncated or does not match meta/."""


class VideoFileError(DatasetError, ValueError):
    """An MP4 is missing, truncated or not a video."""


class FrameTimestampError(VideoFileError):
    """No frame lies within the tolerance of the wanted time."""


class StorageError(RobostreamError, OSError):
    """Bytes could not be read; whoever asked for them knows what they were for, and says so."""


class MissingFileError(StorageError, FileNotFoundError):
    """There is no such file."""


class MissingRevisionError(MissingFileError):
    """The Hub has the dataset, but no such branch, tag or commit of it."""


class DamagedFileError(StorageError):
    """A file is shorter than it should be, or the disk under it fails."""


class ChangedFileError(StorageError):
    """A file is not the one that was opened; mixing both would be neither."""


class ReplacedFileError(ChangedFileError):
    """A file was replaced by another of its size; the server gives no version that tells so."""


class AccessDeniedError(StorageError, PermissionError):
    """The store does not let us read, or wants to know who asks."""


class UnreachableError(StorageError, ConnectionError):
    """The network, or the server behind it, gave no usable answer."""


class NoListingError(StorageError):
    """The store cannot say which files it has; files that are known by name can be read."""


class CacheError(RobostreamError, ValueError):
    """A folder given for the cache is not one, or not of this version."""


class SelectionError(RobostreamError, ValueError):
    """An argument is not of its kind, or asks for episodes, keys or windows that are not there."""


class FrameError(RobostreamError, ValueError):
    """A frame given to the writer has the wrong keys, shape or dtype."""


class WriteError(RobostreamError, OSError):
    """Writing failed; everything saved before is intact."""


class EncoderStalledError(WriteError):
    """A video encoder stopped answering; the episode must be recorded again."""


class StateError(RobostreamError, ValueError):
    """A saved state belongs to another dataset, selection of episodes, or order."""


class ModeError(RobostreamError, RuntimeError):
    """A dataset being written was read, or one opened to read was written."""


class WorkerError(RobostreamError, RuntimeError):
    """A worker process of a loader died."""


class MissingExtraError(RobostreamError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: The package that is missing.
        extra: The extra of robostream that installs it; None where no extra does.
        purpose: What needs the package.
    """

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        install = package if extra is None else f"'robostream[{extra}]'"
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install {install}"
        )


def call_user(name: str, function: Callable[..., T], *args: object) -> T:
    """Return what a user's function returns for `args`.

    Raises RuntimeError where the function raises what a loop or a generator would take for its own
    end, as Python does for a generator (PEP 479).

    Args:
        name: The argument that the function was given as.
        function: The function.
        args: Its arguments.
    """
    try:
        return function(*args)
    except (StopIteration, StopAsyncIteration, GeneratorExit) as error:
        raise RuntimeError(f"{name} raised {error!r}") from error


def tell_where(error: Exception, where: str) -> None:
    """Add to an error's text what was being done. Its type, which users may catch, stays."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({where})",)
