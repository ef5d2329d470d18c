# SPDX-License-Identifier: Apache-2.0
"""The protocol: messages survive the journey, and the channel passes them whole."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.batches import BadSampleError
from robostream.errors import VideoFileError
from robostream.plan import WorkerShard
from robostream.workers import Failed
from robostream.workers.protocol import (
    Assign,
    Begin,
    Built,
    Channel,
    ChannelClosed,
    Crashed,
    End,
    encode,
)
from tests.loader.programs import open_files

Ends = tuple[Channel, Channel]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Both ends of a channel."""
    ours, socket = Channel.pair()
    theirs = Channel(socket)
    yield ours, theirs
    ours.close()
    theirs.close()


@given(messages=st.lists(st.binary(max_size=100_000) | st.text() | st.integers(), max_size=5))
def test_messages_arrive_whole_and_in_order(messages: list[object]) -> None:
    """Small ones travel in the socket, large ones in memory of their own."""
    ours, socket = Channel.pair()
    theirs = Channel(socket)
    assert all(ours.send(encode(message)) for message in messages)
    found = [theirs.receive() for _ in messages]
    nothing = theirs.receive()
    ours.close()
    theirs.close()

    assert found == [(message, []) for message in messages]
    assert nothing is None


@pytest.mark.parametrize("nbytes", [10, 100_000])
def test_descriptors_travel_with_a_message(ends: Ends, nbytes: int) -> None:
    """The receiver gets its own copies of them, beside small and large messages."""
    read, write = os.pipe()
    assert ends[0].send(encode(b"x" * nbytes), [read])
    os.close(read)
    received = ends[1].receive()
    assert received is not None
    message, (copy,) = received
    os.write(write, b"through")

    assert message == b"x" * nbytes
    assert os.read(copy, 100) == b"through"
    for fd in (copy, write):
        os.close(fd)


@pytest.mark.parametrize("nbytes", [10, 100_000])
def test_a_full_channel_refuses_whole_messages(ends: Ends, nbytes: int) -> None:
    """Nothing of a refused message is sent; the next one fits once others were received."""
    payload, sent = encode(b"x" * nbytes), 0
    while ends[0].send(payload):
        sent += 1
    assert not ends[0].has_room(0)
    found = []
    while (received := ends[1].receive()) is not None:
        found.append(received[0])

    assert found == [b"x" * nbytes] * sent
    assert ends[0].has_room(0)
    assert ends[0].send(payload)


def test_a_message_and_an_end_both_wake_the_receiver(ends: Ends) -> None:
    """`is_ready` is false for an idle channel, and true for a message or a closed end."""
    assert not ends[1].is_ready(0)
    ends[0].send(encode("hello"))
    assert ends[1].is_ready(0)
    ends[1].receive()
    assert not ends[1].is_ready(0)
    ends[0].close()
    assert ends[1].is_ready(0)


def test_an_ended_channel_is_an_error_after_its_last_message(ends: Ends) -> None:
    """The receiver gets what was sent; the sender learns that nobody receives."""
    ends[0].send(encode("last"))
    ends[0].close()
    assert ends[1].receive() == ("last", [])
    with pytest.raises(ChannelClosed):
        ends[1].receive()
    with pytest.raises(ChannelClosed):
        ends[1].send(encode("too late"))


def test_classes_of_a_script_are_copied_whole() -> None:
    """A class that no module has reaches the other process; of others, only the name travels."""

    class Local:
        value = 3

    ours, socket = Channel.pair()
    theirs = Channel(socket)
    ours.send(encode(Local()))
    received = theirs.receive()
    ours.close()
    theirs.close()

    assert received is not None
    assert received[0].value == 3
    assert b"ChannelClosed" in encode(ChannelClosed)


def test_no_descriptor_is_left(ends: Ends) -> None:
    """Large messages, refused ones too, leave no file open at either end."""
    payload, before = encode(np.zeros(100_000)), open_files()
    while ends[0].send(payload):
        pass
    in_flight = open_files()
    while ends[1].receive() is not None:
        pass

    assert (in_flight, open_files()) == (before, before)


MESSAGES = [
    WorkerShard(1, 3, 2),
    Begin(4, after=3),
    Assign(4, (5, 1, 2)),
    Built(4, 3, {3: {"task": {0: "push", 2: "pull"}}}),
    End(4),
    Crashed("Traceback ..."),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_are_the_same_at_the_other_end(message: object) -> None:
    """Each is a small record: an epoch sends thousands of them."""
    payload = encode(message)

    assert pickle.loads(payload) == message
    assert len(payload) < 500


class NeedsTwo(Exception):
    """An error that pickle cannot make again: it is called with one argument then."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class RefusesPickle(Exception):
    """An error that cannot be pickled at all."""

    def __reduce__(self) -> tuple[object, ...]:
        raise RuntimeError("no")


FAILURES = [
    (VideoFileError("file-000.mp4 is broken"), VideoFileError),
    (KeyError("column"), KeyError),
    (NeedsTwo("a", "b"), RuntimeError),
    (RefusesPickle("mine"), RuntimeError),
]


@pytest.mark.parametrize(("error", "arrives_as"), FAILURES)
def test_any_error_of_a_sample_reaches_the_consumer(
    error: Exception, arrives_as: type[Exception]
) -> None:
    """As itself or, if it cannot be pickled, as its text; always with what the worker saw."""
    failed = Failed(1, 2, BadSampleError(3, 4, 5, error))
    found = pickle.loads(encode(failed.to_picklable()))

    sample = found.sample
    assert (found.iterator, found.step) == (1, 2)
    assert (sample.episode, sample.frame, sample.position) == (3, 4, 5)
    assert type(sample.error) is arrives_as
    assert str(error) in str(sample.error)
    assert type(error).__name__ in found.trace
