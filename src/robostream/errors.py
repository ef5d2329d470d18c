# SPDX-License-Identifier: Apache-2.0
"""The exceptions that robostream raises on purpose.

RobostreamError
├── DatasetError                        the dataset does not follow the format
│   ├── MetadataError                   meta/ is missing, broken or contradictory
│   ├── CompatibilityError              a codebase_version that this reader cannot read
│   │   ├── BackwardCompatibilityError
│   │   └── ForwardCompatibilityError
│   ├── DataFileError                   Parquet missing, truncated, or not matching meta/
│   └── VideoFileError                  an MP4 is missing, truncated, or not a video
│       └── FrameTimestampError         no frame within the tolerance of a timestamp
├── StorageError                        bytes of a file or URL cannot be read
│   ├── MissingFileError                the file does not exist
│   │   └── MissingRevisionError        the Hub has the dataset, but not this revision
│   ├── DamagedFileError                the file is truncated, or its disk fails
│   ├── ChangedFileError                the file changed after it was opened
│   │   └── ReplacedFileError           the same, on a server without versions
│   ├── AccessDeniedError               the server denies access
│   ├── UnreachableError                the network or the server failed
│   └── NoListingError                  the store cannot list its files
├── CacheError                          the folder is not a cache of this version
├── SelectionError                      invalid arguments, or unknown episodes or keys
├── FrameError                          a frame given to the writer has the wrong shape
├── WriteError                          writing failed; everything saved before is intact
│   └── EncoderStalledError             a video encoder stopped responding
├── StateError                          a saved state of other data or another order
├── ModeError                           reading while writing, or the reverse
├── WorkerError                         a loader's worker process died
└── MissingExtraError                   an optional dependency is not installed

Most also derive from a built-in error, so that code that catches ValueError, OSError or ImportError
catches them too. A message says what was wanted, what was found, where, and how to fix it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class RobostreamError(Exception):
    """The base of all errors robostream raises on purpose."""


class DatasetError(RobostreamError):
    """The dataset does not follow the format."""


class MetadataError(DatasetError, ValueError):
    """A file below meta/ is missing, broken or contradicts another."""


class CompatibilityError(DatasetError):
    """The dataset has a codebase_version that this reader cannot read."""


class BackwardCompatibilityError(CompatibilityError):
    """The dataset has an older format than this reader can read."""


class ForwardCompatibilityError(CompatibilityError):
    """The dataset has a newer format than this reader can read."""


class DataFileError(DatasetError, ValueError):
    """A Parquet file is missing, truncated or does not match meta/."""


class VideoFileError(DatasetError, ValueError):
    """An MP4 is missing, truncated or not a video."""


class FrameTimestampError(VideoFileError):
    """No frame lies within the tolerance of a timestamp."""


class StorageError(RobostreamError, OSError):
    """Bytes of a file or URL cannot be read."""


class MissingFileError(StorageError, FileNotFoundError):
    """The file does not exist."""


class MissingRevisionError(MissingFileError):
    """The Hub has the dataset, but not this branch, tag or commit."""


class DamagedFileError(StorageError):
    """The file is truncated, or its disk fails."""


class ChangedFileError(StorageError):
    """The file changed after it was opened."""


class ReplacedFileError(ChangedFileError):
    """The file was replaced by one of the same size, on a server without versions."""


class AccessDeniedError(StorageError, PermissionError):
    """The server or the filesystem denies access."""


class UnreachableError(StorageError, ConnectionError):
    """The network or the server failed."""


class NoListingError(StorageError):
    """The store cannot list its files; files with a known name can be read."""


class CacheError(RobostreamError, ValueError):
    """The folder is not a cache of this version."""


class SelectionError(RobostreamError, ValueError):
    """An argument is invalid, or selects episodes, keys or windows that do not exist."""


class FrameError(RobostreamError, ValueError):
    """A frame given to the writer has the wrong keys, shape or dtype."""


class WriteError(RobostreamError, OSError):
    """Writing failed; everything saved before is intact."""


class EncoderStalledError(WriteError):
    """A video encoder stopped responding; the episode must be recorded again."""


class StateError(RobostreamError, ValueError):
    """A saved state belongs to another dataset, selection of episodes or order."""


class ModeError(RobostreamError, RuntimeError):
    """A dataset that is being written was read, or one opened for reading was written."""


class WorkerError(RobostreamError, RuntimeError):
    """A worker process of a loader died."""


class MissingExtraError(RobostreamError, ImportError):
    """An optional dependency is not installed.

    `extra` is the extra of robostream that installs `package`, if any; `purpose` needs it.
    """

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        install = package if extra is None else f"'robostream[{extra}]'"
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install {install}"
        )


def call_user(name: str, function: Callable[..., T], *args: object) -> T:
    """Return what a user's function returns for `args`; `name` is the function's argument name.

    Raises RuntimeError instead of StopIteration and its kind, which would end the caller's loop
    silently; Python does the same for generators (PEP 479).
    """
    try:
        return function(*args)
    except (StopIteration, StopAsyncIteration, GeneratorExit) as error:
        raise RuntimeError(f"{name} raised {error!r}") from error


def tell_where(error: Exception, where: str) -> None:
    """Append `where` to an error's message. The type, which users may catch, stays."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({where})",)
