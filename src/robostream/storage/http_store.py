# SPDX-License-Identifier: Apache-2.0
"""Files behind HTTP: byte ranges, remembered redirects, errors from responses; web servers."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import ClassVar
from urllib.parse import quote

from robostream.errors import (
    AccessDeniedError,
    MissingFileError,
    NoListingError,
    StorageError,
    UnreachableError,
)
from robostream.storage.connections import (
    MESSAGE_HEADER,
    HttpResponse,
    basic_authorization,
    connections,
    origin,
    parse_size,
    server_of,
)
from robostream.storage.location import Location, identify, join_url, redact
from robostream.storage.remote_source import FileChunk
from robostream.storage.retry import Traffic, TransientError, retry_policy

_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
_TAG = re.compile(r"<(style|script|head)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_XML_REASON = re.compile(r"<(Code|Message)>([^<]*)</\1>")
_MAX_REASON_LENGTH = 200
_MAX_LISTING_BYTES = 64 << 20
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_TRANSIENT = frozenset((408, 425, 429))
# The status of a signed URL that has expired, and of servers that support GET only.
_EXPIRED = frozenset((400, 401, 403, 404, 410))
_NO_HEAD = frozenset((405, 501))


class HttpStore(ABC):
    """Files of one HTTP server. A subclass maps files to URLs and authorizes requests."""

    OPTIONS: ClassVar[tuple[str, ...]]
    # How a user gains access, for messages.
    LOGIN: ClassVar[str]

    def __init__(self, location: Location, traffic: Traffic) -> None:
        self._location = location
        self._traffic = traffic
        unknown = sorted(set(location.options) - set(self.OPTIONS))
        known = ", ".join(self.OPTIONS)
        if "user" in unknown:
            raise StorageError(
                f"{location.url}: want no user or password in this address, found one. Pass "
                f"credentials as storage_options, by the names {known}."
            )
        if unknown:
            raise StorageError(
                f"{location.url}: storage_options has {', '.join(unknown)}; known are {known}."
            )

    @abstractmethod
    def url_of(self, file: str) -> str:
        """Return the URL of a file. Pure."""

    @abstractmethod
    def authorize(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request."""

    def open(self, file: str) -> HttpFile:
        """Return a file. Sends nothing yet."""
        return HttpFile(self, self.url_of(file), self._location.describe(file))

    def get(self, url: str, name: str) -> HttpResponse:
        """Return the complete response to a GET request that is not for a file."""

        def send() -> HttpResponse:
            headers = self.authorize("GET", url)
            response = connections().request(url, headers, max_bytes=_MAX_LISTING_BYTES)
            if response.status != 200:
                raise response_error(response, name=name, login=self.LOGIN)
            if not response.is_complete:
                raise StorageError(f"{name}: the server's listing is too long.")
            return response

        return retry_policy(server_of(url), self._traffic).call(send, name)


class WebStore(HttpStore):
    """A folder of a web server that supports byte ranges."""

    OPTIONS = ("headers", "user", "query", "token")
    LOGIN = (
        "Write the address as https://user:password@host/..., or pass headers that grant access: "
        "storage_options={'headers': {'Authorization': ...}}."
    )

    def __init__(self, location: Location, traffic: Traffic) -> None:
        super().__init__(location, traffic)
        options = location.options
        self._headers = dict(options.get("headers") or {})
        if options.get("token"):
            self._headers["Authorization"] = f"Bearer {options['token']}"
        elif options.get("user"):
            self._headers["Authorization"] = basic_authorization(options["user"])

    def url_of(self, file: str) -> str:
        """Return the URL of a file. Pure."""
        query = self._location.options.get("query")
        return f"{self._location.url}/{quote(file)}" + (f"?{query}" if query else "")

    def authorize(self, *_: str) -> Mapping[str, str]:
        """Return the user's headers."""
        return self._headers

    def list_files(self, folder: str) -> dict[str, int]:
        """Raise NoListingError: web servers have no common listing format."""
        raise NoListingError(f"{self._location.describe(folder)}: a web server lists no files.")


class HttpFile:
    """A file at a URL.

    A redirect costs a request and often leads to a signed URL that is valid for an hour. So the
    target is remembered until it has expired. Credentials are sent to the scheme, host and port of
    the original URL only.
    """

    def __init__(self, store: HttpStore, url: str, name: str) -> None:
        self.name = name
        self.identity = identify(url)
        self.server = server_of(url)
        self._store = store
        self._url = url
        self._target: tuple[str, str] | None = None

    def fetch(self, start: int, stop: int) -> FileChunk:
        """Return the bytes [start, stop), fewer only at the end of the file; or raise."""
        target = self._target
        if target is not None:
            response = self._get(target[0], start, stop)
            if response.status not in _EXPIRED | _REDIRECTS:
                return self._chunk(response, start, stop, target[1])
            self._target = None
        url, linked = self._url, ""
        for _ in range(_MAX_REDIRECTS):
            response = self._get(url, start, stop)
            if response.status not in _REDIRECTS or "location" not in response.headers:
                return self._chunk(response, start, stop, linked)
            url = self._redirect(url, response)
            if "x-linked-etag" in response.headers:
                linked = version_of(response)
            self._target = url, linked
        raise UnreachableError(
            f"{self.name}: more than {_MAX_REDIRECTS} redirects, to {redact(url)}"
        )

    def stat(self) -> FileChunk:
        """Return the size and version of the file, without bytes; or raise."""
        headers = self._headers("HEAD", self._url)
        response = connections().request(self._url, headers, max_bytes=0, method="HEAD")
        found = response.headers
        size = parse_size(found.get("x-linked-size") or found.get("content-length", ""))
        is_redirect = response.status in _REDIRECTS
        is_linked = is_redirect and "x-linked-size" in found
        if is_linked and "location" in found:
            self._target = self._redirect(self._url, response), version_of(response)
        if (response.status == 200 or is_linked) and size is not None:
            return FileChunk(b"", size, version_of(response))
        if is_redirect or response.status == 200 or response.status in _NO_HEAD:
            return replace(self.fetch(0, 1), content=b"")
        raise response_error(response, name=self.name, login=self._store.LOGIN)

    def _get(self, url: str, start: int, stop: int) -> HttpResponse:
        headers = self._headers("GET", url) | {"Range": f"bytes={start}-{stop - 1}"}
        return connections().request(url, headers, max_bytes=stop - start)

    def _headers(self, method: str, url: str) -> dict[str, str]:
        is_ours = url == self._url or origin(url) == origin(self._url)
        credentials = self._store.authorize(method, url) if is_ours else {}
        return {"Accept-Encoding": "identity", **credentials}

    def _redirect(self, url: str, response: HttpResponse) -> str:
        target = join_url(url, response.headers["location"])
        if origin(url)[0] == "https" != origin(target)[0]:
            raise UnreachableError(
                f"{self.name}: the server redirects from https to {redact(target)}, where anybody "
                "on the way could read or change the file. Have the server redirect to https."
            )
        return target

    def _chunk(self, response: HttpResponse, start: int, stop: int, linked: str) -> FileChunk:
        chunk = read_chunk(response, start, stop, name=self.name, login=self._store.LOGIN)
        return replace(chunk, version=linked, tag=chunk.version) if linked else chunk


def read_chunk(
    response: HttpResponse, start: int, stop: int, *, name: str, login: str
) -> FileChunk:
    """Return the bytes [start, stop) from the response to a range request, or raise. Pure."""
    if response.status == 206:
        return _partial_content(response, start, stop)
    if response.status == 416:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if match is not None and match[3] != "*":
            return FileChunk(b"", int(match[3]), version_of(response))
    if response.status == 200:
        return _full_content(response, start, stop, name)
    raise response_error(response, name=name, login=login)


def _partial_content(response: HttpResponse, start: int, stop: int) -> FileChunk:
    found = response.headers.get("content-range", "")
    match = _CONTENT_RANGE.fullmatch(found)
    size = parse_size(match[3]) if match else None
    end = stop if size is None else min(stop, size)
    if not match or not match[1] or (int(match[1]), int(match[2]) + 1) != (start, end):
        found = found[:_MAX_REASON_LENGTH]
        raise TransientError(f"wanted bytes {start} to {stop}, the server sent {found!r}")
    received = len(response.content)
    if received != end - start or not response.is_complete:
        # The header is right, but the body is truncated or too long.
        found = f"{received}" if response.is_complete else f"more than {received}"
        raise TransientError(f"wanted {end - start} bytes, the server sent {found}")
    return FileChunk(response.content, size, version_of(response))


def _full_content(response: HttpResponse, start: int, stop: int, name: str) -> FileChunk:
    """Return a range out of a complete file, from a server that ignores ranges."""
    length = parse_size(response.headers.get("content-length", ""))
    if "content-encoding" in response.headers:
        raise StorageError(
            f"{name}: the server compresses files, so they have no byte ranges. Disable that."
        )
    size = len(response.content) if length is None and response.is_complete else length
    if not response.is_complete and start > 0:
        if "bytes" not in response.headers.get("accept-ranges", ""):
            raise StorageError(
                f"{name}: the server gives whole files only, no byte ranges. Serve the dataset "
                "with one that supports ranges, such as nginx, or copy it here."
            )
        # A server that supports ranges may return one at the next attempt.
        raise TransientError(f"wanted bytes {start} to {stop}, the server sent the whole file")
    return FileChunk(response.content[start:stop], size, version_of(response))


def response_error(response: HttpResponse, *, name: str, login: str) -> Exception:
    """Return the error that a response without content means."""
    status = response.status
    if status in _TRANSIENT or status >= 500:
        wait_s = retry_after_s(response.headers.get("retry-after"), time.time())
        is_throttled = status == 429 or (status == 503 and wait_s is not None)
        kind = "throttled" if is_throttled else "failure"
        return TransientError(f"HTTP {status}", kind, wait_s=wait_s)
    if status in (404, 410):
        what = _shorten(response.headers.get(MESSAGE_HEADER, "")) or "the server has no such file"
        return MissingFileError(f"{name}: {what} (HTTP {status}). Check the address and the root.")
    reason = _reason(response)
    if status in (401, 403):
        shown = f"HTTP {status}, {reason!r}" if reason else f"HTTP {status}"
        return AccessDeniedError(f"{name}: the server denies access ({shown}). {login}")
    region = response.headers.get("x-amz-bucket-region")
    if status in (301, 400) and region:
        cure = f"storage_options={{'region': {region!r}}}"
        return StorageError(f"{name}: the bucket lies in the region {region}: pass {cure}.")
    shown = f"HTTP {status}: {reason}" if reason else f"HTTP {status}."
    return StorageError(f"{name}: the server answered {shown}")


def _reason(response: HttpResponse) -> str:
    """Return the reason a server gives: short, without markup and secrets."""
    reason = response.headers.get(MESSAGE_HEADER)
    if not reason:
        text = response.content.decode("utf-8", "replace")
        reason = ": ".join(m[2] for m in _XML_REASON.finditer(text)) or _TAG.sub(" ", text)
    return _shorten(reason)


def _shorten(text: str) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in redact(text)).split())
    return plain if len(plain) <= _MAX_REASON_LENGTH else f"{plain[:_MAX_REASON_LENGTH]}..."


def retry_after_s(value: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, which holds seconds or a date; else None."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def version_of(response: HttpResponse) -> str:
    """Return the ETag of a file, or else its time of last change."""
    tag = response.headers.get("x-linked-etag") or response.headers.get("etag")
    return tag.removeprefix("W/").strip('"') if tag else response.headers.get("last-modified", "")
