# SPDX-License-Identifier: Apache-2.0
"""What the consumer and its workers say to each other survives the journey."""

from __future__ import annotations

import pickle

import pytest

from robostream.errors import VideoFileError
from robostream.plan import Cut
from robostream.workers import Failed, WorkerIdentity
from robostream.workers.channel import encode
from robostream.workers.messages import Assign, Begin, Built, Crashed, End, Ended
from robostream.workers.worker_loop import portable

MESSAGES = [
    WorkerIdentity(1, 3),
    Begin(4, Cut(0, 2, 8, drop_last=True), 17),
    Assign(4, 3, (5, 1, 2)),
    Built(4, 3, {3: {"task": {0: "push", 2: "pull"}}}),
    End(4),
    Ended(4),
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
    failed = Failed(1, 2, 3, 4, 5, error=error, trace="")
    found = pickle.loads(encode(portable(failed)))

    assert (found.tour, found.step, found.episode, found.frame, found.position) == (1, 2, 3, 4, 5)
    assert type(found.error) is arrives_as
    assert str(error) in str(found.error)
    assert type(error).__name__ in found.trace
