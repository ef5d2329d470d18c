# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 messages as the proxy reads and writes them, and its log of what it did."""

from __future__ import annotations

import re
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass, field, replace

_BODILESS = (204, 304)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """A request or a response, with its whole body."""

    line: str  # the request line or status line
    fields: tuple[tuple[str, str], ...] = ()  # header names and values, in the order received
    body: bytes = field(default=b"", repr=False)  # decoded from chunks

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        """The path and query of a request."""
        return self.line.split(" ")[1]

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.line.split(" ")[1])

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a header."""
        return next((v for n, v in self.fields if n.lower() == name.lower()), default)

    def without(self, *names: str) -> HttpMessage:
        """Return the message without these headers."""
        dropped = {name.lower() for name in names}
        kept = tuple(pair for pair in self.fields if pair[0].lower() not in dropped)
        return replace(self, fields=kept)

    def with_field(self, name: str, value: str) -> HttpMessage:
        """Return the message with a header set."""
        return replace(self, fields=(*self.without(name).fields, (name, value)))

    def with_body(self, body: bytes) -> HttpMessage:
        """Return the message with another body and its Content-Length."""
        return replace(self, body=body).with_field("Content-Length", str(len(body)))

    def head(self) -> bytes:
        """Return the encoded message up to the body."""
        lines = [self.line, *(f"{name}: {value}" for name, value in self.fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def byte_range(self) -> tuple[int, int | None] | None:
        """Return the requested [start, stop); None for a whole file or a suffix range."""
        match = _RANGE.fullmatch(self.get("Range"))
        return (int(match[1]), int(match[2]) + 1 if match[2] else None) if match else None


async def read_request(reader: StreamReader) -> HttpMessage | None:
    """Return the next request of a connection; None at its end."""
    try:
        head = await _read_head(reader)
    except (IncompleteReadError, ConnectionError):
        return None
    size = int(head.get("Content-Length", "0"))
    return replace(head, body=await reader.readexactly(size))


async def read_response(reader: StreamReader, method: str) -> HttpMessage:
    """Return the response to a request; a chunked body becomes one with a length."""
    head = await _read_head(reader)
    if method == "HEAD" or head.status in _BODILESS:
        return head
    if head.get("Transfer-Encoding").lower() == "chunked":
        return head.without("Transfer-Encoding").with_body(await _read_chunks(reader))
    if head.get("Content-Length"):
        return replace(head, body=await reader.readexactly(int(head.get("Content-Length"))))
    return head.with_body(await reader.read())


async def _read_head(reader: StreamReader) -> HttpMessage:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = text.rstrip("\r\n").split("\r\n")
    pairs = (entry.partition(":") for entry in rest)
    return HttpMessage(line, tuple((name, value.strip()) for name, _, value in pairs))


async def _read_chunks(reader: StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(chunks)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response."""

    at_s: float  # when the request arrived, in seconds since the proxy started
    method: str
    path: str  # without the query, which may hold secrets
    start: int | None  # the first requested byte; None without a range
    stop: int | None  # one past the last requested byte; None for an open range
    status: int  # 0 if the connection was cut before one was sent
    sent_bytes: int  # of the body
    fault: str  # the kind injected, "limit" if the rate limit refused the request, or ""
