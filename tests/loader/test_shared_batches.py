# SPDX-License-Identifier: Apache-2.0
"""Batches lie in memory shared with workers; what the consumer holds is never written to again."""

from __future__ import annotations

import gc
import random
import threading
import time
import tracemalloc
from itertools import islice
from typing import Any

import pytest
import torch

from robostream import LeRobotDataset, StreamingDataLoader, config
from robostream.errors import WorkerError
from tests.loader.streams import (
    AV1,
    assert_equals_map_style,
    blind_stream,
    flat,
    indices,
    open_loader,
    open_stream,
)
from tests.parameters import long_except

TOP = "observation.images.top"
FRAMES = list(range(62))


@pytest.fixture(scope="module")
def items() -> LeRobotDataset:
    return LeRobotDataset("some/name", root=AV1, return_uint8=True)


def free_slots(loader: StreamingDataLoader) -> int:
    assert loader._running is not None
    return loader._running.slots.num_free


HOLDS = {
    "a view": lambda batch: batch[TOP][1:2, :, ::2],
    "another shape": lambda batch: batch[TOP].reshape(-1),
    "numpy": lambda batch: torch.from_numpy(batch[TOP].numpy()[0]),
    "one small tensor": lambda batch: batch["timestamp"],
    "the batch": lambda batch: batch[TOP],
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("hold", long_except(HOLDS, "a view", "numpy"))
def test_what_is_held_is_not_written_again(hold: str, workers: int) -> None:
    """A batch, a view of one tensor, or its memory seen by numpy stays what it was."""
    loader = open_loader(open_stream(), 4, num_workers=workers)
    for most in (2, 100):  # within what may be held, and beyond
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        for batch in loader:
            part = HOLDS[hold](batch)
            kept = [*kept, (part, part.clone())][-most:]
            del batch, part

        assert all(torch.equal(part, copy) for part, copy in kept)


def test_a_tensor_handed_to_another_thread_is_not_written_again() -> None:
    """A slot is freed also if another thread drops the last tensor."""
    loader = open_loader(open_stream(), 2, num_workers=2)
    wrong: list[int] = []

    def use(picture: torch.Tensor, copy: torch.Tensor) -> None:
        time.sleep(random.random() / 20)
        if not torch.equal(picture, copy):
            wrong.append(1)

    threads = []
    for batch in loader:
        picture = batch[TOP]
        threads.append(threading.Thread(target=use, args=(picture, picture.clone())))
        threads[-1].start()
        del batch, picture
    for thread in threads:
        thread.join()

    assert not wrong
    assert sorted(flat(loader)) == FRAMES


@pytest.mark.parametrize("workers", [0, 2])
def test_a_list_of_all_batches_is_right_and_said_once(
    items: LeRobotDataset, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches beyond those that may be held are copies; memory of slots does not grow."""
    loader = open_loader(open_stream(), 2, num_workers=workers)
    epochs = [list(loader) for _ in range(2)]
    for batches in epochs:
        assert sorted(flat(batches)) == FRAMES
        for batch in batches:
            assert_equals_map_style(batch, items)

    assert caplog.text.count("copied into memory of their own") == 1
    loader.set_epoch(9)  # not the one that workers have begun
    assert loader._running is not None
    loader._running.pool.settle(0)
    total = config.LIVE_ITERATORS * loader._options.depth + config.HELD_BATCHES
    assert free_slots(loader) == total - config.HELD_BATCHES


def test_a_small_tensor_holds_little() -> None:
    """Who keeps one small tensor of every batch does not keep the pictures, beyond 3 batches."""
    loader = open_loader(open_stream(), 2)
    pictures = next(iter(loader))[TOP].nbytes
    list(islice(loader, 8))  # what is kept for good is there
    tracemalloc.start()
    held = [batch["timestamp"] for batch in loader]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(held) == 31
    assert kept < len(held) * pictures / 4


def test_slots_come_back() -> None:
    """When nothing is held and no iterator lives, every slot is free."""
    loader = open_loader(blind_stream(), 2, num_workers=2)
    iterator = iter(loader)
    total = config.LIVE_ITERATORS * loader._options.depth + config.HELD_BATCHES
    held = list(islice(iterator, 6))
    list(islice(iter(loader), 3))
    del held, iterator
    gc.collect()
    assert loader._running is not None
    loader._running.pool.settle(0)

    assert free_slots(loader) == total


@pytest.mark.parametrize("workers", [0, 2])
def test_as_many_iterators_as_stated_live_at_a_time(workers: int) -> None:
    """Several iterators take turns; one more is told what to do; dropping one makes room."""
    loader = open_loader(blind_stream(), 2, num_workers=workers, prefetch_factor=2)
    live = [iter(loader) for _ in range(config.LIVE_ITERATORS)]
    expected = indices(open_loader(blind_stream(), 2))
    held = [next(iterator) for iterator in live for _ in range(2)]
    with pytest.raises(WorkerError, match="in use by iterators that are still alive"):
        for _ in iter(loader):
            pass
    rest = [indices(iterator) for iterator in live]

    assert rest == [expected[2:]] * len(live)
    assert indices(held) == expected[:2] * len(live)
    assert sorted(flat(loader)) == FRAMES


def slow_and_random(picture: Any) -> Any:
    """Some pictures take their time, so that workers still write when an iterator is closed."""
    time.sleep(0.02 * torch.rand(()).item() ** 8)
    return picture


@pytest.mark.parametrize("device", long_except([None, "cpu"], None))
@pytest.mark.parametrize("workers", long_except([2, 3], 2))
def test_slots_of_an_iterator_left_early_wait_for_all_workers(
    items: LeRobotDataset, workers: int, device: str | None
) -> None:
    """Many early exits while slow workers write: every later batch equals the map-style items."""
    # With several lanes a place in the batch is another worker's from step to step.
    stream = open_stream(image_transforms=slow_and_random, lanes=5)
    loader = open_loader(stream, 3, num_workers=workers, prefetch_factor=3, device=device)
    rng = random.Random(workers)
    for _ in range(40):
        for batch in islice(loader, rng.randint(0, 3)):
            assert_equals_map_style(batch, items)
    found = []
    for batch in loader:
        assert_equals_map_style(batch, items)
        found += batch["index"].tolist()

    assert sorted(found) == FRAMES


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_loop_inside_a_loop_delivers_both(device: str | None) -> None:
    """An inner loop over the same loader ends neither the outer one nor its batches."""
    expected = indices(open_loader(blind_stream(), 8))
    loader = open_loader(blind_stream(), 8, num_workers=2, device=device)
    outer = []
    for batch in loader:
        outer.append(batch["index"].tolist())
        assert sorted(flat(loader)) == FRAMES

    assert outer == expected


@pytest.mark.parametrize("prefetch_factor", long_except([1, 40, 400], 1, 400))
def test_any_number_of_batches_ahead(prefetch_factor: int) -> None:
    """If a socket is full, neither the consumer nor a worker stops."""
    loader = open_loader(blind_stream(), 1, num_workers=2, prefetch_factor=prefetch_factor)
    live = [iter(loader) for _ in range(4)]
    time.sleep(0.2)

    assert [sorted(flat(iterator)) for iterator in live] == [FRAMES] * 4
