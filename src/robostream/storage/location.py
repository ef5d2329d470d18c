# SPDX-License-Identifier: Apache-2.0
"""Dataset roots, the relative paths below them, and URLs without secrets. Pure."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from robostream import config
from robostream.errors import StorageError

_MAX_PATH_LENGTH = 4096
_REPO_URL = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?/?")
# A query, or a user and password, inside a text: both may hold secrets.
_QUERY = re.compile(r"(?<=[\w/])\?[^\s'\"<>)\]]+")
# A password may hold an unescaped "@", "/", "?" or "#"; what follows then looks like a port that is
# no number. Everything up to the last "@" is removed.
_USER = re.compile(r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:\[]*:(?!\d*(?:[/?#\s]|$))\S*@)(?:\S*@)?")
# Query parameters that grant access and select no content: AWS, Google, CloudFront and Azure. The
# short names count only beside a signature.
_SIGNATURE = re.compile(r"(?i)x-(amz|goog)-.*|sig(nature)?|expires|(access_?)?token")
_BESIDE_SIGNATURE = re.compile(
    r"(?i)awsaccesskeyid|googleaccessid|key-pair-id|policy|s[veptris]|srt|spr|sip|sdd|sk\w+"
)


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The folder of the disk cache, and its limit: bytes, or a text such as "200GB"."""

    folder: Path
    limit: int | str | None = None  # None means half of the free disk space


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, local or remote. Its options may be keys and tokens, so they are never printed."""

    url: str  # or a local path
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    cache: CacheSettings | None = None

    @property
    def local_root(self) -> Path | None:
        """The folder as a path, or None if it is remote."""
        return None if "://" in self.url else Path(self.url)

    @property
    def is_remote(self) -> bool:
        """Whether the files are on another machine."""
        return self.local_root is None

    def describe(self, relative: str) -> str:
        """Return the full address of a file, for messages."""
        return f"{self.url}/{relative}"


def as_location(
    root: str | Path, options: dict[str, Any] | None = None, cache: CacheSettings | None = None
) -> Location:
    """Return the location of a path or URL; local paths become absolute."""
    text, options = str(root).removeprefix("file://"), dict(options or {})
    if "://" in text:
        text, secrets = _separate_secrets(text)
        options |= secrets
    else:
        text = check_encodable(str(Path(text).expanduser().absolute()))
    stripped = {k: v.strip() if isinstance(v, str) else v for k, v in options.items()}
    return Location(text.rstrip("/") or "/", stripped, cache)


def _separate_secrets(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL that may be printed, and its secrets as options."""
    scheme = url.partition("://")[0]
    if scheme in ("http", "https"):
        parts = split_url(url)
        user, _, host = parts.netloc.rpartition("@")
        shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
        return shown, {"user": user, "query": parts.query}
    if scheme in ("hf", "s3", "s3a"):
        user = split_url(url).netloc.rpartition("@")[0]
        return (url.replace(f"{user}@", "", 1), {"user": user}) if user else (url, {})
    # Each fsspec filesystem parses its own URLs, so it gets the complete one.
    shown, query = redact(url), url.partition("?")[2]
    if shown == url:
        return url, {}
    split_url(url)
    return shown, {"credential_url": url, "query": query}


def parse_repo_url(url: str) -> tuple[str, str | None] | None:
    """Return (repo_id, revision or None) of `hf://datasets/owner/name[@revision]`, else None."""
    match = _REPO_URL.fullmatch(url)
    return (match[1], unquote(match[2]) if match[2] else None) if match else None


def explicit_root(dataset: str, *, looks_here: bool = True) -> str | None:
    """Return `dataset` if it is a path or URL, or None if it is a name to look up.

    A text that looks like a path is one, even if nothing is there. A plain name is a path if
    `looks_here` and the folder of that name holds a dataset.
    """
    is_path = dataset.startswith((".", "/", "~")) or "://" in dataset
    is_here = looks_here and os.path.isfile(Path(dataset, config.INFO_PATH))
    return dataset if is_path or is_here else None


def check_relative_path(file: str) -> str:
    """Return a path if it stays below the root, else raise: metadata may be hostile."""
    parts = file.split("/")
    is_odd = len(file) > _MAX_PATH_LENGTH or any(ord(letter) < 32 for letter in file)
    if is_odd or "://" in file or any(part in ("", ".", "..") for part in parts):
        raise StorageError(
            f"{file[:200]!r} is not a file below the dataset's root; want a path such as "
            "'data/chunk-000/file-000.parquet'. Check the path templates in meta/info.json: "
            "somebody may have changed them to read or write other files."
        )
    return file


def check_encodable(path: str) -> str:
    """Return a local path if the filesystem encoding can express it, else raise."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise StorageError(
            f"{path!a}: the letter {path[error.start]!a} cannot be part of a file's name in "
            f"{sys.getfilesystemencoding()}, which this Python takes from its locale. Set the "
            "environment variable PYTHONUTF8=1, or LC_ALL=C.UTF-8, and start again."
        ) from error
    return path


def redact(text: str) -> str:
    """Return a text without the users, passwords and queries of its URLs.

    Every message and every file that shows a foreign URL must pass through here.
    """
    return _QUERY.sub("?...", _USER.sub("", text))


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL; raise StorageError if it is malformed."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # validated on access only
    except ValueError:
        raise StorageError(
            f"{redact(url)}: malformed URL. Want one such as https://host:443/folder, with a "
            "port of at most 65535. Write '/', '?', '#' and '@' in a password as %2F, %3F, %23 and "
            "%40."
        ) from None
    return parts


def join_url(url: str, target: str) -> str:
    """Return the URL that a server names in its response to `url`."""
    split_url(target)
    return urljoin(url, target)


def identify(url: str) -> str:
    """Return a digest that identifies the file at a URL across all servers.

    It covers server, path and query, but no user and no signature: a URL that is signed again
    still names the same file.
    """
    parts = split_url(url)
    named = [(part.partition("=")[0], part) for part in parts.query.split("&")]
    query = [part for name, part in named if not _SIGNATURE.fullmatch(name)]
    if any(name.lower() in ("sig", "signature") for name, _ in named):
        query = [part for part in query if not _BESIDE_SIGNATURE.fullmatch(part.partition("=")[0])]
    host = parts.netloc.rpartition("@")[2]
    return digest(urlunsplit((parts.scheme, host, parts.path, "&".join(query), "")))


def digest(*parts: str) -> str:
    """Return a name for some texts, 64 hexadecimal digits. Pure."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
