# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 requests and answers, as far as the proxy needs them. Bodies are held whole."""

from __future__ import annotations

import re
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass, field, replace
from http import HTTPStatus

_BODILESS = (204, 304)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer.

    Attributes:
        line: The first line.
        fields: Header names and values, as they came.
        body: The body, without transfer encoding.
    """

    line: str
    fields: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)

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
        """The status of an answer."""
        return int(self.line.split(" ")[1])

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a header."""
        return next((v for n, v in self.fields if n.lower() == name.lower()), default)

    def without(self, *names: str) -> Message:
        """Return the message without some headers."""
        low = {name.lower() for name in names}
        return replace(
            self, fields=tuple(pair for pair in self.fields if pair[0].lower() not in low)
        )

    def with_field(self, name: str, value: str) -> Message:
        """Return the message with a header set."""
        return replace(self, fields=(*self.without(name).fields, (name, value)))

    def with_body(self, body: bytes) -> Message:
        """Return the message with another body, and the length that belongs to it."""
        return replace(self, body=body).with_field("Content-Length", str(len(body)))

    def head(self) -> bytes:
        """Return everything before the body as it is sent."""
        lines = [self.line, *(f"{name}: {value}" for name, value in self.fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def byte_range(self) -> tuple[int, int | None] | None:
        """Return [start, stop) of the bytes a request asks for; None for all, or for a tail."""
        match = _RANGE.fullmatch(self.get("Range"))
        return (int(match[1]), int(match[2]) + 1 if match[2] else None) if match else None


def make_answer(status: int, body: bytes, **fields: str) -> Message:
    """Return an answer; header names are written with underscores."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    pairs = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    return Message(line, pairs).with_body(body)


async def read_request(reader: StreamReader) -> Message | None:
    """Return the next request of a connection; None where it ends."""
    try:
        head = await _read_head(reader)
    except (IncompleteReadError, ConnectionError):
        return None
    size = int(head.get("Content-Length", "0"))
    return replace(head, body=await reader.readexactly(size))


async def read_answer(reader: StreamReader, method: str) -> Message:
    """Return the answer to a request, with a length where it came in chunks."""
    head = await _read_head(reader)
    if method == "HEAD" or head.status in _BODILESS:
        return head
    if head.get("Transfer-Encoding").lower() == "chunked":
        return head.without("Transfer-Encoding").with_body(await _read_chunks(reader))
    if head.get("Content-Length"):
        return replace(head, body=await reader.readexactly(int(head.get("Content-Length"))))
    return head.with_body(await reader.read())


async def _read_head(reader: StreamReader) -> Message:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = text.rstrip("\r\n").split("\r\n")
    pairs = (entry.partition(":") for entry in rest)
    return Message(line, tuple((name, value.strip()) for name, _, value in pairs))


async def _read_chunks(reader: StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(chunks)
