# SPDX-License-Identifier: Apache-2.0
"""Where a dataset's files lie: a local folder, or a folder behind any fsspec URL."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from robostream.errors import MetadataError, MissingExtraError

_REPO_URL = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?/?")


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, local or remote; pickles as its address."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/") or "/")

    @property
    def local_root(self) -> Path | None:
        """The folder as a path, or None if it is remote."""
        return None if "://" in self.url else Path(self.url)

    def describe(self, relative: str) -> str:
        """Return the full address of a file, for messages."""
        return f"{self.url}/{relative}"

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec filesystem and this folder's path in it."""
        from fsspec.core import url_to_fs  # local datasets, and their workers, do without

        try:
            fs, path = url_to_fs(self.url, **self.options)
        except ImportError as error:
            # fsspec tells what to install in words; the name is with the error that it met.
            package = error.name or getattr(error.__cause__, "name", None) or str(error)
            extra = "s3" if self.url.startswith("s3") else None
            raise MissingExtraError(package, extra, self.url) from error
        except ValueError as error:
            raise MetadataError(
                f"{self.url}: {error}. Want a local folder, hf://datasets/owner/name[@revision], "
                "hf://buckets/owner/name, s3://bucket/path, or another fsspec URL."
            ) from error
        return fs, path

    def read_bytes(self, relative: str) -> bytes:
        """Return a whole small file; FileNotFoundError if there is none."""
        if self.local_root is not None:
            return (self.local_root / relative).read_bytes()
        fs, path = self.filesystem()
        with as_connection_error():
            content: bytes = fs.cat_file(f"{path}/{relative}")
        return content

    def exists(self, relative: str) -> bool:
        """Return whether a file is there."""
        if self.local_root is not None:
            return (self.local_root / relative).is_file()
        fs, path = self.filesystem()
        with as_connection_error():
            return bool(fs.isfile(f"{path}/{relative}"))

    def find(self, folder: str, suffix: str) -> list[str]:
        """Return the paths, relative to this location, of all files below `folder`, sorted."""
        if self.local_root is not None:
            # Unlike pathlib's, this follows links: chunks may lie on several disks.
            pattern = f"{glob.escape(folder)}/**/*{suffix}"
            return sorted(glob.glob(pattern, root_dir=self.local_root, recursive=True))
        fs, path = self.filesystem()
        prefix = path.rstrip("/") + "/"
        try:
            with as_connection_error():
                listed = fs.find(prefix + folder)
        except FileNotFoundError:
            return []
        return sorted(_relative(name, prefix) for name in listed if name.endswith(suffix))


def parse_repo_url(url: str) -> tuple[str, str | None] | None:
    """Return (repo_id, revision or None) of `hf://datasets/owner/name[@revision]`, else None."""
    match = _REPO_URL.fullmatch(url)
    return (match[1], unquote(match[2]) if match[2] else None) if match else None


def as_location(root: str | Path, options: dict[str, Any] | None = None) -> Location:
    """Return the location of a path or URL; a local path is made absolute."""
    text = str(root)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" not in text:
        text = str(Path(text).expanduser().absolute())
    return Location(text, options or {})


def written_root(dataset: str) -> str | None:
    """Return a dataset's root if a person wrote one, or None for a name to look up.

    What is written as a path is one, also where it is mistyped and does not exist.
    """
    is_path = dataset.startswith((".", "/", "~")) or "://" in dataset or Path(dataset).is_dir()
    return dataset if is_path else None


@contextmanager
def as_connection_error() -> Iterator[None]:
    """Turn what the libraries below fsspec raise about the network into what Python raises."""
    # Only a filesystem that is in use has loaded its library.
    s3, http = sys.modules.get("botocore.exceptions"), sys.modules.get("aiohttp")
    hub = sys.modules.get("huggingface_hub.errors")
    # What is below huggingface_hub is not the same in all its versions.
    foreign: list[type[Exception]] = [hub.HfHubHTTPError.__bases__[0]] if hub else []
    foreign += [s3.BotoCoreError] if s3 else []
    foreign += [http.ClientError] if http else []
    try:
        yield
    except OSError:
        raise
    except tuple(foreign) as error:
        raise ConnectionError(
            f"{error}. Check the address, the access keys and the network."
        ) from error


def _relative(name: str, prefix: str) -> str:
    # Hub filesystems may spell the same folder with or without the revision.
    return name[len(prefix) :] if name.startswith(prefix) else name[name.index("/meta/") + 1 :]
