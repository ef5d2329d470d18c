# SPDX-License-Identifier: Apache-2.0
"""Files behind any fsspec filesystem."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from robostream.errors import (
    AccessDeniedError,
    MissingExtraError,
    MissingFileError,
    NoListingError,
    StorageError,
    UnreachableError,
)
from robostream.storage.location import Location
from robostream.storage.store import whole

# What filesystems call the text that changes when a file does.
_VERSION_KEYS = ("ETag", "etag", "blob_id", "LastModified", "last_modified", "mtime", "created")


class FsspecStore:
    """A folder of an fsspec filesystem."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._fs, self._root = _open_filesystem(location)

    def open(self, file: str) -> FsspecSource:
        """Return the bytes of a file. Reads nothing yet."""
        return FsspecSource(self._fs, f"{self._root}/{file}", name=self._location.describe(file))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        prefix = self._root.rstrip("/") + "/"
        try:
            with reaching(self._location.describe(folder)):
                listed = self._fs.find(prefix + folder, detail=True)
        except MissingFileError:
            return {}
        except NotImplementedError as error:
            raise NoListingError(f"{self._location.url}: this store lists no files.") from error
        return {_relative(name, prefix): int(entry["size"]) for name, entry in listed.items()}


class FsspecSource:
    """A file of an fsspec filesystem, read by range."""

    def __init__(self, fs: Any, path: str, *, name: str) -> None:
        self.name = name
        self._fs = fs
        self._path = path
        self._known: dict[str, Any] | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return int(self._info()["size"])

    def version(self) -> str:
        """Return a text that changes when the file does; empty where nothing tells."""
        info = self._info()
        return next((str(info[key]) for key in _VERSION_KEYS if info.get(key)), "")

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        with reaching(self.name):
            content = self._read(start, stop)
        return whole(content, start, stop, self.name)

    def _info(self) -> dict[str, Any]:
        if self._known is None:
            with reaching(self.name):
                self._known = dict(self._fs.info(self._path))
        return self._known

    def _read(self, start: int, stop: int) -> bytes:
        content: bytes
        if getattr(self._fs, "async_impl", False):
            content = self._fs.cat_file(self._path, start=start, end=stop)
            return content
        # Others, the Hub's among them, would read a block of several megabytes ahead.
        with self._fs.open(self._path, "rb", cache_type="none") as file:
            file.seek(start)
            content = file.read(stop - start)
        return content


@contextmanager
def reaching(name: str) -> Iterator[None]:
    """Turn what a filesystem, or a library below it, raises about a file into a StorageError."""
    # Only a filesystem that is in use has loaded its library.
    s3, http = sys.modules.get("botocore.exceptions"), sys.modules.get("aiohttp")
    hub = sys.modules.get("huggingface_hub.errors")
    # What is below huggingface_hub is not the same in all its versions.
    foreign: list[type[Exception]] = [hub.HfHubHTTPError.__bases__[0]] if hub else []
    foreign += [s3.BotoCoreError] if s3 else []
    foreign += [http.ClientError] if http else []
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: there is no such file. Check the address.") from error
    except PermissionError as error:
        raise AccessDeniedError(f"{name}: {error}. Check the access keys.") from error
    except (OSError, *foreign) as error:  # type: ignore[misc]
        what = str(error) or type(error).__name__
        raise UnreachableError(
            f"{name}: {what}. Check the address, the access keys and the network."
        ) from error


def _open_filesystem(location: Location) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL, and the folder's path in it."""
    from fsspec.core import url_to_fs  # local datasets, and their workers, do without

    try:
        fs, path = url_to_fs(location.url, **location.options)
    except ImportError as error:
        # fsspec tells what to install in words; the name is with the error that it met.
        package = error.name or getattr(error.__cause__, "name", None) or str(error)
        extra = "s3" if location.url.startswith("s3") else None
        raise MissingExtraError(package, extra, location.url) from error
    except ValueError as error:
        raise StorageError(
            f"{location.url}: {error}. Want a local folder, hf://datasets/owner/name[@revision], "
            "hf://buckets/owner/name, s3://bucket/path, or another fsspec URL."
        ) from error
    return fs, path


def _relative(name: str, prefix: str) -> str:
    # Hub filesystems may spell the same folder with or without the revision.
    return name[len(prefix) :] if name.startswith(prefix) else name[name.index("/meta/") + 1 :]
