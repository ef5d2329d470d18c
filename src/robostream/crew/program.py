# SPDX-License-Identifier: Apache-2.0
"""The program of a worker process: takes messages, builds batches, and ends with its consumer."""

from __future__ import annotations

import gc
import os
import signal
import socket

import numpy as np

from robostream.crew.channel import Channel, ChannelClosed
from robostream.crew.messages import Assign, Begin, End, Ended, Hello, Recipe
from robostream.crew.shared_memory import map_memory, unpack
from robostream.crew.station import Station
from robostream.decode import COUNTERS

# How often a worker that waits looks whether its consumer is still there. Usually the channel says
# so at once; not if a process the consumer forked holds its end open.
_LOOK_S = 1.0


def main(fd: int) -> None:
    """Serve the consumer at the other end of a socket until it is gone."""
    # Ctrl-C reaches the whole group of processes; the consumer decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    consumer = os.getppid()
    channel = Channel(socket.socket(fileno=fd))
    try:
        station = _open_station(channel)
        # What was loaded so far stays; looking through it again and again would take time.
        gc.freeze()
        while True:
            while channel.is_ready(0 if station.has_work() else _LOOK_S):
                _take_message(station, channel)
            if os.getppid() != consumer:
                return
            done = station.work()
            if done is not None:
                channel.send(done)
    except ChannelClosed:
        # The operating system takes everything back faster than Python would.
        os._exit(0)


def _open_station(channel: Channel) -> Station:
    hello, fds = channel.receive()
    assert isinstance(hello, Hello)
    recipe: Recipe = unpack(fds[0])
    batches, board = map_memory(fds[1]), map_memory(fds[2])
    kept = map_memory(fds[3]) if len(fds) > 3 else None
    for fd in fds:
        os.close(fd)
    counters = board.view(np.float64).reshape(-1, len(COUNTERS))[hello.worker]
    return Station(recipe, hello, batches=batches, counters=counters, kept=kept)


def _take_message(station: Station, channel: Channel) -> None:
    message, fds = channel.receive()
    if isinstance(message, Begin):
        plan = unpack(fds[0])
        os.close(fds[0])
        station.begin(message, plan)
    elif isinstance(message, Assign):
        station.assign(message)
    elif isinstance(message, End):
        station.end(message.tour)
        channel.send(Ended(message.tour))
