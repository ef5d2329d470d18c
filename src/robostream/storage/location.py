# SPDX-License-Identifier: Apache-2.0
"""Names of files that can be opened and stay below their root; addresses without secrets. Pure."""

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

_LONGEST_NAME = 4096
# What a query or a user's name and password look like inside a text: signatures are in there.
_QUERY = re.compile(r"(?<=[\w/])\?[^\s'\"<>)\]]+")
# A password may hold an unescaped "@", or a "/", "?" or "#", after which it reads as a port that is
# no number: all up to the last "@" goes.
_USER = re.compile(r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:\[]*:(?!\d*(?:[/?#\s]|$))\S*@)(?:\S*@)?")
# Parameters of a query that grant access and select no content: of AWS, Google, CloudFront and
# Azure. The short names mean that only beside a signature.
_SIGNATURE = re.compile(r"(?i)x-(amz|goog)-.*|sig(nature)?|expires|(access_?)?token")
_BESIDE_SIGNATURE = re.compile(
    r"(?i)awsaccesskeyid|googleaccessid|key-pair-id|policy|s[veptris]|srt|spr|sip|sdd|sk\w+"
)


def confined(file: str) -> str:
    """Return a file's name if it stays below the root it is relative to, else raise.

    Names are made from what metadata says, and metadata comes from strangers.
    """
    parts = file.split("/")
    is_strange = len(file) > _LONGEST_NAME or any(ord(letter) < 32 for letter in file)
    if is_strange or "://" in file or any(part in ("", ".", "..") for part in parts):
        raise StorageError(
            f"{file[:200]!r} is no name of a file below the dataset's root; want one such as "
            "'data/chunk-000/file-000.parquet'. Check the path templates in meta/info.json: they "
            "may come from somebody who wants other files to be read or written."
        )
    return file


def encodable(path: str) -> str:
    """Return a local path if this process can ask the system for it, else raise."""
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
    """Return a text with addresses that lack the user, the password and the query.

    Every message and every file that shows an address from elsewhere passes through here.
    """
    return _QUERY.sub("?...", _USER.sub("", text))


def split_url(url: str) -> SplitResult:
    """Return the parts of an address; raise a StorageError if they cannot be told apart."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # found out only when it is asked for
    except ValueError:
        raise StorageError(
            f"{redact(url)}: this is no address. Want one such as https://host:443/folder, with a "
            "port of at most 65535. Write '/', '?', '#' and '@' in a password as %2F, %3F, %23 and "
            "%40."
        ) from None
    return parts


def join_url(url: str, target: str) -> str:
    """Return the address that a server names in its answer to another; raise if it is none."""
    split_url(target)
    return urljoin(url, target)


def identify(url: str) -> str:
    """Return a digest that names the file at an address among those of all servers.

    Server, path and query are part of it, users and signatures are not: an address that is signed
    again is still that of the same file.
    """
    parts = split_url(url)
    names = [part.partition("=")[0] for part in parts.query.split("&")]
    is_signed = any(name.lower() in ("sig", "signature") for name in names)
    query = [
        part
        for name, part in zip(names, parts.query.split("&"), strict=True)
        if not _SIGNATURE.fullmatch(name) and not (is_signed and _BESIDE_SIGNATURE.fullmatch(name))
    ]
    host = parts.netloc.rpartition("@")[2]
    address = urlunsplit((parts.scheme, host, parts.path, "&".join(query), ""))
    return hashlib.sha256(address.encode()).hexdigest()


def split_secrets(url: str) -> tuple[str, str, str]:
    """Return an address without its secrets, then its user and password, and its query."""
    parts = split_url(url)
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path, "", "")), user, parts.query


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
