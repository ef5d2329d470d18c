# SPDX-License-Identifier: Apache-2.0
"""The proxy's process: it passes requests on to one server and does what a script says.

python -m robostream.bench.network.proxy http://127.0.0.1:PORT

It prints its own address, then answers commands on its standard input, one JSON object a line, and
ends when that closes.
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
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from robostream.bench.network.answers import IN_TRANSIT, place_in, refusal, spoil
from robostream.bench.network.journal import Exchange
from robostream.bench.network.limits import Allowance, Bandwidth
from robostream.bench.network.message import Message, make_answer, read_answer, read_request
from robostream.bench.network.script import Director, Fault, Script

_PIECE_BYTES = 16 * 1024
# What concerns one connection, not the message.
_HOP_FIELDS = ("Connection", "Keep-Alive", "Proxy-Connection")


class _Cut(Exception):  # no error: the connection ends as the script says
    """The connection ends here."""


class Upstream:
    """One client's connection to the server, opened when needed and again when it was closed."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._streams: tuple[StreamReader, StreamWriter] | None = None

    async def ask(self, request: Message) -> Message:
        """Return the server's answer."""
        for is_last in (self._streams is None, True):
            try:
                return await self._ask(request)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if is_last:
                    raise
        raise AssertionError("the second try returns or raises")

    async def _ask(self, request: Message) -> Message:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(request.head() + request.body)
        await writer.drain()
        answer = await read_answer(reader, request.method)
        if answer.get("Connection").lower() == "close":
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class FaultyProxy:
    """What the connections share: the script, its limits, and the journal."""

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        self._address = address.hostname or "127.0.0.1", address.port or 80
        self._began = time.monotonic()
        self.journal: list[Exchange] = []
        self.set_script(Script())

    def set_script(self, script: Script) -> None:
        """Do what a script says from now on; its counts begin anew."""
        self.script = script
        self._director = Director(script)
        self._bandwidth = Bandwidth(script.bytes_per_s)
        self._allowance = Allowance(script.requests_per_s)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one client until it or the script ends the connection."""
        upstream = Upstream(*self._address)
        _set_up(writer)
        try:
            await asyncio.sleep(self.script.latency_s)
            while (request := await read_request(reader)) is not None:
                await self._exchange(request, upstream, (reader, writer))
        except (_Cut, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the last: the proxy itself ends
        finally:
            upstream.close()
            writer.close()

    async def _exchange(
        self, request: Message, upstream: Upstream, streams: tuple[StreamReader, StreamWriter]
    ) -> None:
        at_s = time.monotonic() - self._began
        path = request.target.partition("?")[0]
        byte_range = request.byte_range() or (None, None)
        sending = _Sending(streams, self._bandwidth)
        status, suffered = 0, ""
        await asyncio.sleep(self.script.latency_s)
        try:
            if not self._allowance.take(time.monotonic()):
                answer, suffered = (
                    make_answer(429, b"too many requests\n", Retry_After="1"),
                    "limit",
                )
                fault, chance = None, 0.0
            else:
                wanted = request.get("Range")
                fault, chance = self._director.choose(request.method, path, wanted)
                answer, suffered = await _answer(request, upstream, fault, chance)
            status = answer.status
            if fault is None or fault.kind not in IN_TRANSIT:
                await sending.whole(answer)
            else:
                suffered = fault.kind
                await sending.in_part(answer, fault, chance)
        finally:
            line = (at_s, request.method, path, *byte_range, status, sending.sent_bytes, suffered)
            self.journal.append(Exchange(*line))


async def _answer(
    request: Message, upstream: Upstream, fault: Fault | None, chance: float
) -> tuple[Message, str]:
    """Return what to send, and the fault that shows in it."""
    if fault is not None and fault.kind == "status":
        answer = refusal(fault)
        # What follows the head of an answer to HEAD would be taken for the next answer.
        return replace(answer, body=b"") if request.method == "HEAD" else answer, fault.kind
    asked = request.without(*_HOP_FIELDS)
    if fault is not None and fault.kind == "ignore_range" and request.get("Range"):
        asked, done = asked.without("Range"), True
    else:
        done = False
    answer = (await upstream.ask(asked)).without(*_HOP_FIELDS)
    if fault is None or fault.kind in IN_TRANSIT:
        return answer, ""
    spoilt = spoil(answer, fault, chance)
    return spoilt, fault.kind if done or spoilt != answer else ""


class _Sending:
    """One answer on its way to the client."""

    def __init__(self, streams: tuple[StreamReader, StreamWriter], bandwidth: Bandwidth) -> None:
        self._reader, self._writer = streams
        self._bandwidth = bandwidth
        self.sent_bytes = 0

    async def whole(self, answer: Message) -> None:
        await self._send(answer.head(), answer.body)

    async def in_part(self, answer: Message, fault: Fault, chance: float) -> None:
        place = place_in(answer.body, fault, chance)
        # A body of which nothing is missing would be no fault.
        place = min(place, max(len(answer.body) - 1, 0))
        if place or fault.kind != "reset":
            await self._send(answer.head(), answer.body[:place])
        if fault.kind == "stall":
            # Nothing more, until the client gives up.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._reader.read(1), fault.seconds)
        if fault.kind == "reset":
            _reset(self._writer)
        raise _Cut

    async def _send(self, head: bytes, body: bytes) -> None:
        self._writer.write(head)
        for at in range(0, len(body), _PIECE_BYTES):
            piece = body[at : at + _PIECE_BYTES]
            await self._bandwidth.take(len(piece))
            self._writer.write(piece)
            await self._writer.drain()
            self.sent_bytes += len(piece)
        await self._writer.drain()


def _set_up(writer: StreamWriter) -> None:
    # Draining then waits until the kernel has everything, so that what is counted was sent.
    writer.transport.set_write_buffer_limits(high=0)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(writer: StreamWriter) -> None:
    # Closing a socket that lingers for no time sends RST.
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _commands(proxy: FaultyProxy) -> dict[str, Callable[..., Any]]:
    def journal(after: int) -> list[Any]:
        return [dataclasses.astuple(exchange) for exchange in proxy.journal[after:]]

    def script(values: dict[str, Any]) -> None:
        proxy.set_script(Script.from_dict(values))

    return {"journal": journal, "script": script}


async def _obey(proxy: FaultyProxy) -> None:
    """Carry out commands until there will be no more."""
    reader = StreamReader(limit=1 << 24)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    commands = _commands(proxy)
    while line := await reader.readline():
        name, argument = json.loads(line)
        print(json.dumps(commands[name](argument)), flush=True)


async def _run(upstream: str) -> None:
    proxy = FaultyProxy(upstream)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await _obey(proxy)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(sys.argv[1]))
