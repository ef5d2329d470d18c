# SPDX-License-Identifier: Apache-2.0
"""What an HTTP answer to a request for a range means. Pure."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

from robostream.errors import AccessDeniedError, MissingFileError, StorageError, UnreachableError
from robostream.storage.connections import (
    MESSAGE_HEADER,
    Answer,
    Connections,
    origin,
    parse_size,
    server_of,
)
from robostream.storage.location import identify, join_url, redact
from robostream.storage.retry import TransientError

_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
# The reason a server gives, in an error: its tags go, and what is beyond so many letters.
_TAG = re.compile(r"<(style|script|head)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_XML_REASON = re.compile(r"<(Code|Message)>([^<]*)</\1>")
_LONGEST_REASON = 200
_PASSING = frozenset((408, 425, 429))


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file as a server gave them.

    Attributes:
        content: The bytes; fewer than were asked for only at the end of the file.
        size: How large the file is; None if the server does not say.
        version: A text that changes when the file does; empty if the server has none.
        tag: What the server that gave the bytes calls this version, where another named it.
    """

    content: bytes
    size: int | None
    version: str
    tag: str = ""


def read_part(answer: Answer, start: int, stop: int, *, name: str, login: str) -> Part:
    """Return the bytes [start, stop) out of an answer, or raise what it means.

    Args:
        answer: What the server answered to a request for that range.
        start: The first byte that was asked for.
        stop: One past the last.
        name: The file, for messages.
        login: How to be let in, for messages.
    """
    if answer.status == 206:
        return _ranged(answer, start, stop, name)
    if answer.status == 416:
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if match is not None and match[3] != "*":
            return Part(b"", int(match[3]), version_of(answer))
    if answer.status == 200:
        return _unranged(answer, start, stop, name)
    raise refusal(answer, name=name, login=login)


def refusal(answer: Answer, *, name: str, login: str) -> Exception:
    """Return the error that an answer without content stands for."""
    status = answer.status
    if is_transient(status):
        wait_s = retry_after_s(answer.headers.get("retry-after"), time.time())
        is_refusal = status == 429 or (status == 503 and wait_s is not None)
        return TransientError(f"HTTP {status}", is_refusal=is_refusal, wait_s=wait_s)
    if status in (404, 410):
        what = _bounded(answer.headers.get(MESSAGE_HEADER, "")) or "the server has no such file"
        return MissingFileError(f"{name}: {what} (HTTP {status}). Check the address and the root.")
    if status in (401, 403):
        reason = _reason(answer)
        said = f"HTTP {status}, {reason!r}" if reason else f"HTTP {status}"
        return AccessDeniedError(f"{name}: the server does not let us in ({said}). {login}")
    region = answer.headers.get("x-amz-bucket-region")
    if status in (301, 400) and region:
        cure = f"storage_options={{'region': {region!r}}}"
        return StorageError(f"{name}: the bucket lies in the region {region}: pass {cure}.")
    reason = _reason(answer)
    said = f"HTTP {status}: {reason}" if reason else f"HTTP {status}."
    return StorageError(f"{name}: the server answered {said}")


def _reason(answer: Answer) -> str:
    """Return why a server refuses, in its own words: short, and without secrets."""
    said = answer.headers.get(MESSAGE_HEADER)
    if not said:
        text = answer.content.decode("utf-8", "replace")
        said = ": ".join(m[2] for m in _XML_REASON.finditer(text)) or _TAG.sub(" ", text)
    return _bounded(said)


def _bounded(text: str) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in redact(text)).split())
    return plain if len(plain) <= _LONGEST_REASON else f"{plain[:_LONGEST_REASON]}..."


def is_transient(status: int) -> bool:
    """Return whether a status stands for a failure that passes."""
    return status in _PASSING or status >= 500


def retry_after_s(value: str | None, now: float) -> float | None:
    """Return the seconds a Retry-After header asks for, given as seconds or as a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - now, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def version_of(answer: Answer) -> str:
    """Return what tells this version of a file from others."""
    tag = answer.headers.get("x-linked-etag") or answer.headers.get("etag")
    return tag.removeprefix("W/").strip('"') if tag else answer.headers.get("last-modified", "")


def _ranged(answer: Answer, start: int, stop: int, name: str) -> Part:
    found = answer.headers.get("content-range", "")
    match, found = _CONTENT_RANGE.fullmatch(found), found[:_LONGEST_REASON]
    if match is None or match[1] is None:
        raise TransientError(f"wanted bytes {start} to {stop}, the server says it gave {found!r}")
    first, last = int(match[1]), int(match[2])
    size = parse_size(match[3])
    end = stop if size is None else min(stop, size)
    if (first, last + 1) != (start, end):
        raise TransientError(f"wanted bytes {start} to {stop}, the server says it gave {found!r}")
    if len(answer.content) != end - start or not answer.is_whole:
        # The header is right and the body is not: cut off, or more than was announced.
        much = f"{len(answer.content)}" if answer.is_whole else f"more than {len(answer.content)}"
        raise TransientError(f"wanted {end - start} bytes, the server gave {much}")
    return Part(answer.content, size, version_of(answer))


def _unranged(answer: Answer, start: int, stop: int, name: str) -> Part:
    """Return a range out of a whole file, from a server that does not give ranges."""
    length = parse_size(answer.headers.get("content-length", ""))
    if "content-encoding" in answer.headers:
        raise StorageError(f"{name}: the server packs files, so they have no ranges. Turn it off.")
    size = len(answer.content) if length is None and answer.is_whole else length
    if not answer.is_whole and start > 0:
        if "bytes" not in answer.headers.get("accept-ranges", ""):
            raise StorageError(
                f"{name}: the server gives whole files only, and no ranges of their bytes. Serve "
                "the dataset with one that does, such as nginx, or copy it here."
            )
        # A server that has ranges and does not give one may do so when it is asked again.
        raise TransientError(f"wanted bytes {start} to {stop}, the server gave the whole file")
    return Part(answer.content[start:stop], size, version_of(answer))


_MOST_HOPS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
# What a signed address says when it has expired.
_EXPIRED = frozenset((400, 401, 403, 404, 410))

# What servers say that know GET only.
_NO_HEAD = frozenset((405, 501))

# What lets us in: the headers for a request (its method and address), which may sign it.
Authorise = Callable[[str, str], Mapping[str, str]]


class HttpFile:
    """A file at an address.

    A redirect costs a request, and where it leads is often a signed address that holds for an hour:
    so it is followed once, and again only when the signed address does not hold any more.

    Args:
        connections: What asks.
        url: The address.
        name: The address without secrets, for messages.
        authorise: What lets us in there; it is sent to that scheme, host and port alone, wherever
            we are redirected to.
        login: How a user would be let in, for messages.
    """

    def __init__(
        self, connections: Connections, url: str, *, name: str, authorise: Authorise, login: str
    ) -> None:
        self.name = name
        self.identity = identify(url)
        self.server = server_of(url)
        self._connections = connections
        self._url = url
        self._authorise = authorise
        self._login = login
        self._target: tuple[str, str] | None = None

    def ask(self, start: int, stop: int) -> Part:
        """Return the bytes [start, stop), asking once; or raise."""
        target = self._target
        if target is not None:
            answer = self._get(target[0], start, stop)
            if answer.status not in _EXPIRED | _REDIRECTS:
                return self._part(answer, start, stop, target[1])
            self._target = None
        url, linked = self._url, ""
        for _ in range(_MOST_HOPS):
            answer = self._get(url, start, stop)
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return self._part(answer, start, stop, linked)
            url = self._follow(url, answer)
            if "x-linked-etag" in answer.headers:
                linked = version_of(answer)
            self._target = url, linked
        raise UnreachableError(f"{self.name}: more than {_MOST_HOPS} redirects, to {redact(url)}")

    def look(self) -> Part:
        """Return the size and version of the file, without its bytes; or raise."""
        answer = self._connections.ask(
            self._url, self._headers("HEAD", self._url), most_bytes=0, method="HEAD"
        )
        headers = answer.headers
        size = parse_size(headers.get("x-linked-size") or headers.get("content-length", ""))
        is_linked = answer.status in _REDIRECTS and "x-linked-size" in headers
        if is_linked and "location" in headers:
            self._target = self._follow(self._url, answer), version_of(answer)
        if (answer.status == 200 or is_linked) and size is not None:
            return Part(b"", size, version_of(answer))
        if answer.status in _NO_HEAD or answer.status in _REDIRECTS or answer.status == 200:
            return replace(self.ask(0, 1), content=b"")
        raise refusal(answer, name=self.name, login=self._login)

    def _get(self, url: str, start: int, stop: int) -> Answer:
        headers = self._headers("GET", url) | {"Range": f"bytes={start}-{stop - 1}"}
        return self._connections.ask(url, headers, most_bytes=stop - start)

    def _headers(self, method: str, url: str) -> dict[str, str]:
        is_ours = url == self._url or origin(url) == origin(self._url)
        return {"Accept-Encoding": "identity", **(self._authorise(method, url) if is_ours else {})}

    def _follow(self, url: str, answer: Answer) -> str:
        target = join_url(url, answer.headers["location"])
        if origin(url)[0] == "https" != origin(target)[0]:
            raise UnreachableError(
                f"{self.name}: the server redirects from https to {redact(target)}, where anybody "
                "on the way could read or change the file. Have the server redirect to https."
            )
        return target

    def _part(self, answer: Answer, start: int, stop: int, linked: str) -> Part:
        part = read_part(answer, start, stop, name=self.name, login=self._login)
        return replace(part, version=linked, tag=part.version) if linked else part
