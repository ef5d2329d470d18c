# SPDX-License-Identifier: Apache-2.0
"""A pool of workers: it starts, builds, fails, is killed, waits for its consumer, and ends."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robostream.errors import VideoFileError, WorkerError
from robostream.workers import Failed, worker_pool
from tests.fixture_datasets import copy_of
from tests.loader.programs import is_alive, open_files
from tests.loader.streams import open_stream
from tests.workers.pools import FRAMES, indices, open_pool

VIDEO = "videos/observation.images.top/chunk-000/file-000.mp4"
KINDS = pytest.mark.parametrize("num_workers", [0, 2])


def assert_equal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            is_array = isinstance(value, np.ndarray)
            assert np.array_equal(ours[key], value) if is_array else ours[key] == value, key


@pytest.mark.parametrize("num_workers", [1, 3])
def test_workers_build_what_the_process_itself_builds(num_workers: int) -> None:
    """Every array and text of every batch, frames included, whoever builds which part."""
    with open_pool(0, open_stream()) as alone, open_pool(num_workers, open_stream()) as shared:
        expected, found = alone.epoch(alone.begin()), shared.epoch(shared.begin())

    assert sorted(indices(expected)) == FRAMES
    assert_equal(found, expected)


def test_workers_are_processes_and_nothing_is_left_of_them() -> None:
    """As many as asked for, until the pool is closed; closing again does nothing."""
    with open_pool(1):  # what the first pool of a process opens for good is open then
        pass
    gc.collect()  # of the metadata, a Parquet file is open until then
    files = open_files()
    with open_pool(3) as consumer:
        pids = consumer.pool.pids
        assert len(set(pids) - {os.getpid()}) == 3
        assert all(map(is_alive, pids))
        assert consumer.pool.is_usable
        consumer.pool.close()
        assert not any(map(is_alive, pids))
        assert not consumer.pool.is_usable
    del consumer
    gc.collect()

    assert open_files() == files


@KINDS
def test_several_iterators_share_a_pool(num_workers: int) -> None:
    """Their batches are built in turns, each in slots of its own, none in another's."""
    with open_pool(num_workers, num_slots=32) as consumer:
        first, second = consumer.begin(), consumer.begin()
        steps = consumer.schedule.num_steps
        consumer.pool.assign(first, tuple(range(steps)))
        consumer.pool.assign(second, tuple(range(steps, 2 * steps)))
        found = [
            (consumer.take(second, step, steps + step), consumer.take(first, step, step))
            for step in range(steps)
        ]

    assert first != second
    assert sorted(indices([batch for batch, _ in found])) == FRAMES
    assert_equal([batch for batch, _ in found], [batch for _, batch in found])


def test_an_iterator_may_wait_for_another() -> None:
    """Nothing of it is built before all that is assigned to the other; then it goes on."""
    with open_pool(1, open_stream(), num_slots=32) as consumer:
        first = consumer.begin()
        steps = consumer.schedule.num_steps
        consumer.pool.assign(first, tuple(range(steps)))
        second = consumer.pool.begin(consumer.schedule, 0, after=first)
        consumer.pool.assign(second, tuple(range(steps, 2 * steps)))
        consumer.pool.wait(second, 0)

        assert consumer.pool.is_built(first, steps - 1)
        batches = [consumer.take(second, step, steps + step) for step in range(steps)]
        assert sorted(indices(batches)) == FRAMES


@KINDS
def test_an_ended_iterator_gives_its_slots_back(num_workers: int) -> None:
    """Once, when no worker writes to them any more; the others go on."""
    with open_pool(num_workers) as consumer:
        ended, other, idle = consumer.begin(), consumer.begin(), []
        consumer.pool.assign(ended, (0, 1, 2, 3))
        consumer.pool.wait(ended, 0)
        consumer.pool.end(ended, lambda: idle.append(ended))
        consumer.pool.settle(0)
        assert idle == [ended]
        epoch = consumer.epoch(other)
        consumer.pool.settle(0)

    assert idle == [ended]
    assert sorted(indices(epoch)) == FRAMES


def test_an_iterator_may_be_dropped_in_the_middle_of_anothers_work() -> None:
    """By another thread or the garbage collector: `end` never waits, and the next call ends it."""
    idle: list[str] = []

    def drop(image: torch.Tensor) -> torch.Tensor:
        if image.any() and not idle:  # not the black one that transforms are tried on
            idle.append("begun")
            consumer.pool.end(first, lambda: idle.append("first"))
            thread = threading.Thread(
                target=consumer.pool.end, args=(second, lambda: idle.append("second"))
            )
            thread.start()
            thread.join()
        return image

    with open_pool(0, open_stream(image_transforms=drop)) as consumer:
        first, second, other = consumer.begin(), consumer.begin(), consumer.begin()
        consumer.pool.assign(other, (0, 1))
        consumer.take(other, 0, 0)
        assert idle == ["begun"]
        consumer.take(other, 1, 1)

    assert idle == ["begun", "first", "second"]


def test_a_built_batch_is_known_without_waiting() -> None:
    """`is_built` is false before a batch is assigned, and true for all that were waited for."""
    with open_pool(2) as consumer:
        number = consumer.begin()
        assert not consumer.pool.is_built(number, 0)
        consumer.pool.assign(number, (0, 1))
        consumer.pool.wait(number, 1)

        assert consumer.pool.is_built(number, 0)
        assert consumer.pool.is_built(number, 1)
        assert not consumer.pool.is_built(number, 2)


def test_a_slow_consumer_stops_no_worker() -> None:
    """Workers whose reports fill the channel go on once the consumer takes them, in any order."""
    with open_pool(2, batch_size=1, num_slots=62) as consumer:
        numbers = [consumer.begin() for _ in range(40)]
        for number in numbers:
            consumer.pool.assign(number, tuple(range(62)))
        for number in reversed(numbers):
            consumer.pool.wait(number, 61)
        for number in numbers:
            consumer.pool.end(number, lambda: None)
        consumer.pool.settle(0)

        assert sorted(indices(consumer.epoch(consumer.begin()))) == FRAMES


@KINDS
def test_a_sample_that_cannot_be_built_is_a_failure_of_its_batch(
    tmp_path: Path, num_workers: int
) -> None:
    """The error comes with step, episode, frame and position; earlier batches are delivered."""
    root = copy_of("av1_multifile", tmp_path)
    with open_pool(num_workers, open_stream(root, shuffle=False), batch_size=1) as consumer:
        (root / VIDEO).write_bytes((root / VIDEO).read_bytes()[:1000])
        number = consumer.begin()
        consumer.pool.assign(number, tuple(range(16)))
        found = consumer.pool.wait(number, 15)

    assert isinstance(found, Failed)
    assert isinstance(found.sample.error, VideoFileError)
    assert (found.iterator, found.step, found.sample.position) == (number, 0, 0)
    assert (found.sample.episode, found.sample.frame) == (0, 0)
    assert ("Traceback" in found.trace) == bool(num_workers)


def test_a_worker_that_fails_outside_of_a_sample_says_why() -> None:
    """Its traceback is the consumer's error, and all workers end."""
    with open_pool(2, config="no configuration") as consumer:
        pids = consumer.pool.pids
        with pytest.raises(WorkerError, match=r"(?s)worker \d of 2 \(pid \d+\) failed:.*Traceback"):
            consumer.epoch(consumer.begin())

        assert not any(map(is_alive, pids))


def test_a_killed_worker_is_named_and_the_others_end() -> None:
    """While the consumer waits, and in whatever is asked of the pool afterwards."""
    with open_pool(3) as consumer:
        number, pids = consumer.begin(), consumer.pool.pids
        consumer.pool.assign(number, (0,))
        consumer.pool.wait(number, 0)
        os.kill(pids[1], signal.SIGKILL)
        killed = rf"worker 1 of 3 \(pid {pids[1]}\).*signal 9 \(SIGKILL\)"
        with pytest.raises(WorkerError, match=killed):
            consumer.pool.wait(number, 1)
        for ask in (consumer.begin, consumer.pool.check):
            with pytest.raises(WorkerError, match=killed):
                ask()

        assert not consumer.pool.is_usable
        assert not any(map(is_alive, pids))


def test_a_dead_worker_is_noticed_whoever_holds_its_channel(tmp_path: Path) -> None:
    """A process that it forked keeps its end of the channel open."""
    forked = tmp_path / "forked"

    def fork_and_die(image: torch.Tensor) -> torch.Tensor:
        if image.any():  # not the black one that transforms are tried on
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            forked.write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        return image

    with open_pool(1, open_stream(image_transforms=fork_and_die)) as consumer:
        number = consumer.begin(timeout_s=60)
        consumer.pool.assign(number, (0,))
        with pytest.raises(WorkerError, match=r"worker 0 of 1 .*signal 9 \(SIGKILL\)"):
            consumer.pool.wait(number, 0)

        os.kill(int(forked.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("is_long", [False, True])
def test_descriptors_may_have_to_wait(monkeypatch: pytest.MonkeyPatch, is_long: bool) -> None:
    """While other processes of the user have not received theirs; not for ever."""
    real, waits = socket.send_fds, itertools.count()

    def send(*arguments: Any) -> int:
        if is_long or next(waits) < 3:
            raise OSError(errno.ETOOMANYREFS, "Too many references: cannot splice")
        return real(*arguments)

    monkeypatch.setattr(socket, "send_fds", send)
    if is_long:
        monkeypatch.setattr(worker_pool, "_START_S", 0.1)
        with pytest.raises(WorkerError, match=r"no worker can be started.*ulimit -n"), open_pool(2):
            pass
        return
    with open_pool(2) as consumer:
        assert sorted(indices(consumer.epoch(consumer.begin()))) == FRAMES


def test_a_worker_that_does_not_answer_is_given_up() -> None:
    """After the iterator's timeout, with the worker's name; no worker is left."""
    with open_pool(2) as consumer:
        number, pids = consumer.begin(timeout_s=0.1), consumer.pool.pids
        os.kill(pids[0], signal.SIGSTOP)
        with pytest.raises(
            WorkerError, match=rf"timeout=0\.1 s: .*worker 0 of 2 \(pid {pids[0]}\)"
        ):
            consumer.pool.wait(number, 0)

        assert not any(map(is_alive, pids))


@KINDS
def test_a_closed_pool_says_so(num_workers: int) -> None:
    """Whatever is asked of it, with the cure."""
    with open_pool(num_workers) as consumer:
        number = consumer.begin()
        consumer.pool.close()
        for ask in (
            consumer.begin,
            consumer.pool.check,
            lambda: consumer.pool.wait(number, 0),
            lambda: consumer.pool.assign(number, (0,)),
        ):
            with pytest.raises(WorkerError, match=r"loader\.close\(\); call iter\(loader\) again"):
                ask()


@KINDS
def test_a_fork_may_not_use_its_parents_pool(num_workers: int) -> None:
    """It is refused with the cure, ends nothing, and the parent goes on."""
    with open_pool(num_workers) as consumer:
        number = consumer.begin()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.pool.end(number, lambda: None)
                consumer.pool.wait(number, 0)
            except WorkerError as error:
                code = 0 if "is a fork" in str(error) and not consumer.pool.is_usable else 2
            finally:
                os._exit(code)

        assert os.waitpid(child, 0)[1] == 0
        assert sorted(indices(consumer.epoch(number))) == FRAMES


def test_work_is_counted_by_worker() -> None:
    """Each worker adds to a row of its own in the memory it was given."""
    with open_pool(2, open_stream()) as consumer:
        consumer.epoch(consumer.begin())

        assert consumer.counters.shape[0] == 2
        assert (consumer.counters.sum(axis=1) > 0).all()
