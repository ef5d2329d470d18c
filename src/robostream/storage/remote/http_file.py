# SPDX-License-Identifier: Apache-2.0
"""One file behind HTTP, by range; where it was redirected to is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from robostream.errors import UnreachableError
from robostream.storage.files.names import identify, join_url, redact
from robostream.storage.remote.answers import Part, read_part, refusal, version_of
from robostream.storage.remote.connections import (
    Answer,
    Connections,
    origin,
    parse_size,
    server_of,
)

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
