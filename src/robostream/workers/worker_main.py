# SPDX-License-Identifier: Apache-2.0
"""The program of a worker process: it takes messages, builds batches and ends with the consumer."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import traceback
from typing import Any

import numpy as np

from robostream.decode import COUNTERS
from robostream.device import map_memory, open_shared, unpack
from robostream.workers.channel import Channel, ChannelClosed, encode
from robostream.workers.messages import (
    Assign,
    Begin,
    Crashed,
    End,
    Ended,
    Failed,
    WorkerConfig,
    WorkerIdentity,
)
from robostream.workers.worker_loop import WorkerLoop, portable

# How often a waiting worker looks whether its consumer still runs. Usually the channel is closed
# when the consumer ends; but a process that the consumer forked may hold the channel open.
_LOOK_S = 1.0


def main(fd: int, consumer: int) -> None:
    """Serve the process `consumer` at the other end of a socket until it is gone."""
    post = _Post(Channel(socket.socket(fileno=fd)), consumer)
    code = 0
    try:
        _serve(post)
    except ChannelClosed:
        pass
    except BaseException:  # a transform may raise SystemExit or KeyboardInterrupt
        code = 1
        with contextlib.suppress(ChannelClosed):
            post.send(Crashed(traceback.format_exc()))
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be closed, or None
            output.flush()
    # Leave without clearing up: the operating system frees everything faster than Python does.
    os._exit(code)


class _Post:
    """Messages to and from the consumer; raises ChannelClosed once the consumer has ended."""

    def __init__(self, channel: Channel, consumer: int) -> None:
        self._channel = channel
        self._consumer = consumer

    def is_ready(self, timeout_s: float) -> bool:
        """Wait up to a time; return whether a message has come. Blocks."""
        if os.getppid() != self._consumer:
            raise ChannelClosed("the consumer is gone")
        return self._channel.is_ready(timeout_s)

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message. Blocks."""
        while True:
            if self.is_ready(_LOOK_S) and (received := self._channel.receive()) is not None:
                return received

    def send(self, message: object) -> None:
        """Send a message. Blocks while the channel is full."""
        payload = encode(message)
        while not self._channel.send(payload):
            if os.getppid() != self._consumer:
                raise ChannelClosed("the consumer is gone")
            self._channel.has_room(_LOOK_S)


def _serve(post: _Post) -> None:
    station = _open_station(post)
    # Everything loaded so far stays to the end. Frozen, the garbage collector does not look
    # through it again and again.
    gc.freeze()
    while True:
        while post.is_ready(0 if station.has_work() else _LOOK_S):
            _take_message(station, post)
        for done in station.work():
            post.send(portable(done) if isinstance(done, Failed) else done)


def _open_station(post: _Post) -> WorkerLoop:
    hello, fds = post.receive()
    assert isinstance(hello, WorkerIdentity)
    recipe: WorkerConfig = unpack(fds[0])
    batches, board = map_memory(fds[1]), map_memory(fds[2])
    kept = map_memory(fds[3]) if len(fds) > 3 else None
    for fd in fds:
        os.close(fd)
    counters = board.view(np.float64).reshape(-1, len(COUNTERS))[hello.worker]
    on_device = None if recipe.on_device is None else open_shared(recipe.on_device)
    return WorkerLoop(
        recipe, hello, batches=batches, counters=counters, kept=kept, on_device=on_device
    )


def _take_message(station: WorkerLoop, post: _Post) -> None:
    message, fds = post.receive()
    if isinstance(message, Begin):
        plan = unpack(fds[0])
        os.close(fds[0])
        station.begin(message, plan)
    elif isinstance(message, Assign):
        station.assign(message)
    elif isinstance(message, End):
        station.end(message.tour)
        post.send(Ended(message.tour))
