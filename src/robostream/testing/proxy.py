# SPDX-License-Identifier: Apache-2.0
"""The proxy process: forwards requests to one server and injects the faults of a script.

It prints its address, then reads commands from standard input, one JSON array per line, and exits
when standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import struct
import sys
import time
from asyncio import StreamReader, StreamWriter
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from robostream.testing.faults import (
    IN_TRANSIT,
    Director,
    Fault,
    Script,
    apply_fault,
    position_in,
    refuse,
)
from robostream.testing.http_message import (
    Exchange,
    HttpMessage,
    read_request,
    read_response,
)

_PIECE_BYTES = 16 * 1024
_OVER_LIMIT = Fault("status", status=429, retry_after_s=1)
# Headers of one connection, which a proxy does not forward.
_HOP_FIELDS = ("Connection", "Keep-Alive", "Proxy-Connection")


class _Disconnect(Exception):  # not an error: the script closes the connection
    """The connection ends here."""


class Bandwidth:
    """A bandwidth that all connections share, first come, first served."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def take(self, nbytes: int) -> None:
        """Wait until `nbytes` more may be sent."""
        if not self._bytes_per_s:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + nbytes / self._bytes_per_s
        await asyncio.sleep(self._free_at - now)


class RequestLimit:
    """A limit of requests per second; unused requests carry over for one second."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._most = max(per_s, 1.0)
        self._left = self._most
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Return whether one more request is allowed at this time of a monotonic clock."""
        if not self._per_s:
            return True
        self._left = min(self._left + (now_s - self._at_s) * self._per_s, self._most)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class FaultyProxy:
    """The state that all connections share: the script, its limits and the journal."""

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        self._upstream = address.hostname or "127.0.0.1", address.port or 80
        self._began = time.monotonic()
        self.journal: list[Exchange] = []
        self.set_script(Script())

    def set_script(self, script: Script) -> None:
        """Apply a script from now on; its counts start at zero."""
        self.script = script
        self._director = Director(script)
        self._bandwidth = Bandwidth(script.bytes_per_s)
        self._request_limit = RequestLimit(script.requests_per_s)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one client until it or the script closes the connection."""
        # drain() then waits until the kernel has everything, so only sent bytes are counted.
        writer.transport.set_write_buffer_limits(high=0)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.sleep(self.script.latency_s)
            while (request := await read_request(reader)) is not None:
                await self._exchange(request, (reader, writer))
        except (_Disconnect, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # CancelledError: the proxy shuts down
        finally:
            writer.close()

    async def _exchange(
        self, request: HttpMessage, streams: tuple[StreamReader, StreamWriter]
    ) -> None:
        at_s = time.monotonic() - self._began
        path = request.target.partition("?")[0]
        byte_range = request.byte_range() or (None, None)
        sending = _Sending(streams, self._bandwidth)
        status, injected = 0, ""
        await asyncio.sleep(self.script.latency_s)
        try:
            is_allowed = self._request_limit.take(time.monotonic())
            asked = request.method, path, request.get("Range")
            fault, chance = self._director.select(*asked) if is_allowed else (_OVER_LIMIT, 0.0)
            response, injected = await self._answer(request, fault, chance)
            status, injected = response.status, injected if is_allowed else "limit"
            if fault is None or fault.kind not in IN_TRANSIT:
                await sending.send(response.head(), response.body)
            else:
                injected = fault.kind
                await sending.send_part(response, fault, chance)
        finally:
            line = (at_s, request.method, path, *byte_range, status, sending.sent_bytes, injected)
            self.journal.append(Exchange(*line))

    async def _answer(
        self, request: HttpMessage, fault: Fault | None, chance: float
    ) -> tuple[HttpMessage, str]:
        """Return the response to send and the kind of fault in it."""
        if fault is not None and fault.kind == "status":
            response = refuse(fault)
            # A client would take a body after HEAD for the next response.
            return replace(response, body=b"") if request.method == "HEAD" else response, fault.kind
        is_range_ignored = fault is not None and fault.kind == "ignore_range"  # it has a range
        asked = request.without(*_HOP_FIELDS, *(["Range"] if is_range_ignored else []))
        response = (await self._ask(asked)).without(*_HOP_FIELDS)
        if fault is None or fault.kind in IN_TRANSIT:
            return response, ""
        changed = apply_fault(response, fault, chance)
        return changed, fault.kind if is_range_ignored or changed != response else ""

    async def _ask(self, request: HttpMessage) -> HttpMessage:
        """Return the server's response, over a connection of its own."""
        reader, writer = await asyncio.open_connection(*self._upstream)
        with contextlib.closing(writer):
            writer.write(request.with_field("Connection", "close").head() + request.body)
            await writer.drain()
            return await read_response(reader, request.method)


class _Sending:
    """Sends one response to a client and counts its bytes."""

    def __init__(self, streams: tuple[StreamReader, StreamWriter], bandwidth: Bandwidth) -> None:
        self._reader, self._writer = streams
        self._bandwidth = bandwidth
        self.sent_bytes = 0

    async def send_part(self, response: HttpMessage, fault: Fault, chance: float) -> None:
        place = position_in(response.body, fault, chance)
        if place or fault.kind != "reset":
            await self.send(response.head(), response.body[:place])
        if fault.kind == "stall":
            # Send nothing until the client gives up.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._reader.read(1), fault.seconds)
        if fault.kind == "reset":  # closing a socket with a linger time of zero sends RST
            linger = socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(*linger)
            self._writer.transport.abort()
        raise _Disconnect

    async def send(self, head: bytes, body: bytes) -> None:
        self._writer.write(head)
        for at in range(0, len(body), _PIECE_BYTES):
            piece = body[at : at + _PIECE_BYTES]
            await self._bandwidth.take(len(piece))
            self._writer.write(piece)
            await self._writer.drain()
            self.sent_bytes += len(piece)
        await self._writer.drain()


async def _run(upstream: str) -> None:
    proxy = FaultyProxy(upstream)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    commands = StreamReader(limit=1 << 24)
    protocol = asyncio.StreamReaderProtocol(commands)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await commands.readline():
        name, argument = json.loads(line)
        done: list[Any] = []
        if name == "script":
            proxy.set_script(Script.from_dict(argument))
        else:
            done = [dataclasses.astuple(exchange) for exchange in proxy.journal[argument:]]
        print(json.dumps(done), flush=True)


def main(upstream: str) -> None:
    """Serve and execute commands until standard input closes."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(upstream))
