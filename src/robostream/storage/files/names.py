# SPDX-License-Identifier: Apache-2.0
"""Names of files that can be opened and stay below their root; addresses without secrets. Pure."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from urllib.parse import urlsplit, urlunsplit

from robostream.errors import StorageError

_LONGEST_NAME = 4096
# What a query or a user's name and password look like inside a text: signatures are in there.
_QUERY = re.compile(r"(?<=\w)\?[^\s'\"<>)\]]+")
_USER = re.compile(r"(?<=://)[^/\s@]+@")
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
            "may come from somebody who wants other files to be read."
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
    """Return a text with addresses that lack the user, the password and the query."""
    return _USER.sub("", _QUERY.sub("?...", text))


def identify(url: str) -> str:
    """Return a digest that names the file at an address among those of all servers.

    Server, path and query are part of it, users and signatures are not: an address that is signed
    again is still that of the same file.
    """
    parts = urlsplit(url)
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
    """Return an HTTP address without its secrets, then its user and password, and its query."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path, "", "")), user, parts.query
