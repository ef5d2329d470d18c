# SPDX-License-Identifier: Apache-2.0
"""Where a dataset's files lie: a local folder, or a folder behind a URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from robostream import config
from robostream.storage.files.names import encodable, redact, split_secrets, split_url

_REPO_URL = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?/?")


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Where bytes of remote files are kept on a local disk.

    Attributes:
        folder: The folder.
        limit: How much may be kept, as a number of bytes or a text such as "200GB"; None for half
            of what the disk has left.
    """

    folder: Path
    limit: int | str | None = None


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, local or remote.

    Attributes:
        url: Its path or URL.
        options: What the store of a URL is opened with: keys and tokens among them, so they are
            never printed. White space around them, such as the line break after a token that was
            read from a file, is removed.
        cache: Where bytes of a URL's files are kept; None for nowhere.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    cache: CacheSettings | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/") or "/")
        given = self.options.items()
        stripped = {k: v.strip() if isinstance(v, str) else v for k, v in given}
        object.__setattr__(self, "options", stripped)

    @property
    def local_root(self) -> Path | None:
        """The folder as a path, or None if it is remote."""
        return None if "://" in self.url else Path(self.url)

    @property
    def is_remote(self) -> bool:
        """Whether files are on another machine."""
        return self.local_root is None

    def describe(self, relative: str) -> str:
        """Return the full address of a file, for messages."""
        return f"{self.url}/{relative}"


def parse_repo_url(url: str) -> tuple[str, str | None] | None:
    """Return (repo_id, revision or None) of `hf://datasets/owner/name[@revision]`, else None."""
    match = _REPO_URL.fullmatch(url)
    return (match[1], unquote(match[2]) if match[2] else None) if match else None


def as_location(
    root: str | Path, options: dict[str, Any] | None = None, cache: CacheSettings | None = None
) -> Location:
    """Return the location of a path or URL; a local path is made absolute."""
    text, options = str(root), dict(options or {})
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" not in text:
        text = encodable(str(Path(text).expanduser().absolute()))
    if "://" in text:
        text, secrets = _part_secrets(text)
        options |= secrets
    return Location(text, options, cache)


def _part_secrets(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL that can be printed, and as options what must not be. Pure."""
    kind = url.partition("://")[0]
    if kind in ("http", "https"):
        shown, user, query = split_secrets(url)
        return shown, {"user": user, "query": query}
    if kind in ("hf", "s3", "s3a"):
        _, user, _ = split_secrets(url)
        return (url.replace(f"{user}@", "", 1), {"user": user}) if user else (url, {})
    # Each filesystem of fsspec reads its URLs in a way of its own, so it is given all of it.
    shown, query = redact(url), url.partition("?")[2]
    if shown == url:
        return url, {}
    split_url(url)
    return shown, {"credential_url": url, "query": query}


def written_root(dataset: str, *, looks_here: bool = True) -> str | None:
    """Return a dataset's root if a person wrote one, or None for a name to look up.

    What is written as a path is one, also where it is mistyped and does not exist. A plain name is
    one where a dataset lies in a folder here that is called so, if that is looked for.
    """
    is_path = dataset.startswith((".", "/", "~")) or "://" in dataset
    is_here = looks_here and os.path.isfile(Path(dataset, config.INFO_PATH))
    return dataset if is_path or is_here else None
