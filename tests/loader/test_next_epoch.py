# SPDX-License-Identifier: Apache-2.0
"""Workers go on into the next epoch; what is delivered, and where the run stands, stays the same.

Without workers nothing is built ahead, so that is what runs with workers are compared with.
"""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from robostream import LeRobotDataset, StreamingDataLoader, StreamingLeRobotDataset
from robostream.errors import DatasetError, VideoFileError
from robostream.loader.batch_iterator import BatchIterator
from tests.fixture_datasets import FIXTURES
from tests.forked import in_child
from tests.loader.mixtures import blind_mixture, pairs
from tests.loader.programs import is_alive, wait_until
from tests.loader.streams import (
    AV1,
    assert_equals_map_style,
    blind_stream,
    flat,
    indices,
    open_loader,
    open_stream,
)
from tests.parameters import long_rows_except

# The fixture has 2 cameras and 62 frames: 16 batches of 4, the last of 2.
BATCH, DEPTH, FRAMES, CAMERAS = 4, 4, 62, 2
PATIENCE_S = 60.0


def loader_of(workers: int = 2, **options: Any) -> StreamingDataLoader:
    return open_loader(open_stream(), BATCH, num_workers=workers, **options)


def ahead_of(workers: int = 2) -> StreamingDataLoader:
    return loader_of(workers, prefetch_factor=DEPTH)


def images_built(loader: StreamingDataLoader) -> float:
    return loader.stats()["images_built"]


def wait_for_next_epoch(loader: StreamingDataLoader, epochs: int = 1) -> None:
    """Wait until workers have built whole epochs, and as much of the next one as they may."""
    images = CAMERAS * (epochs * FRAMES + DEPTH * BATCH)
    assert wait_until(lambda: images_built(loader) == images, PATIENCE_S), images_built(loader)


def num_slots_in_use(loader: StreamingDataLoader) -> int:
    assert loader._running is not None
    loader._running.pool.settle(PATIENCE_S)
    return loader._options.num_slots - loader._running.slots.num_free


CASES: list[tuple[int, int, dict[str, Any]]] = [
    (1, 4, {"prefetch_factor": 1}),
    (2, 4, {"prefetch_factor": 4}),
    (3, 5, {"prefetch_factor": 3, "drop_last": True}),
    (2, 62, {"prefetch_factor": 4}),
    (2, 20, {"prefetch_factor": 16}),
    (2, 4, {"device": "cpu", "prefetch_factor": 4}),
]


@pytest.mark.parametrize(
    ("workers", "batch_size", "options"), long_rows_except(CASES, CASES[1], CASES[2], CASES[4])
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs_are_those_of_one_process(
    workers: int, batch_size: int, options: dict[str, Any], shuffle: bool
) -> None:
    """Three epochs, batch for batch: long, short, shorter than what is built ahead."""
    ours, alone = (
        open_loader(blind_stream(shuffle=shuffle), batch_size, num_workers=n, **options)
        for n in (workers, 0)
    )

    assert [indices(ours) for _ in range(3)] == [indices(alone) for _ in range(3)]


def test_samples_at_the_seam_have_the_right_values() -> None:
    """Images and rows of the last and the first batches are those of the map-style items."""
    loader, items = ahead_of(), LeRobotDataset("some/name", root=AV1, return_uint8=True)
    for _ in range(2):
        for batch in loader:
            assert_equals_map_style(batch, items)


def test_a_mixture_goes_on_too() -> None:
    """Its epochs differ in what they hold."""
    ours, alone = (open_loader(blind_mixture(), 7, num_workers=n) for n in (2, 0))

    assert [pairs(ours) for _ in range(3)] == [pairs(alone) for _ in range(3)]


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_state_follows_the_consumer(device: str | None) -> None:
    """At every batch it is that of a run that builds nothing ahead, and resumes there."""
    ours, alone = loader_of(prefetch_factor=DEPTH, device=device), loader_of(0)
    states = []
    for _ in range(2):
        for batch, expected in zip(ours, alone, strict=True):
            assert batch["index"].tolist() == expected["index"].tolist()
            assert ours.state_dict() == alone.state_dict()
            states.append(ours.state_dict())
    expected = [flat(open_from(loader_of(0), states[n])) for n in (14, 15, 16)]

    assert [flat(open_from(ahead_of(), states[n])) for n in (14, 15, 16)] == expected


def open_from(loader: StreamingDataLoader, state: dict[str, Any]) -> StreamingDataLoader:
    loader.load_state_dict(state)
    return loader


def test_the_next_epoch_is_built_before_anyone_asks() -> None:
    """As many batches as are built ahead elsewhere, no more, and each once."""
    loader = ahead_of()
    list(loader)
    wait_for_next_epoch(loader)
    list(loader)
    wait_for_next_epoch(loader, epochs=2)
    loader.set_epoch(2)
    list(loader)
    wait_for_next_epoch(loader, epochs=3)

    assert num_slots_in_use(loader) == DEPTH


def test_a_state_of_the_next_epoch_uses_what_is_built() -> None:
    """Saved at the end of an epoch and loaded again, as some training loops do."""
    loader = ahead_of()
    list(loader)
    wait_for_next_epoch(loader)
    loader.load_state_dict(loader.state_dict())
    list(loader)

    wait_for_next_epoch(loader, epochs=2)


def test_both_epochs_have_the_memory_of_one() -> None:
    """No more batches are assigned at the seam than in the middle of an epoch."""
    loader = ahead_of()
    for _ in range(3):
        for _batch in loader:
            assert loader._running is not None
            free = loader._running.slots.num_free
            # Those built ahead, the one in `_batch`, and the one delivered before it.
            assert loader._options.num_slots - free <= DEPTH + 2


Change = Callable[[StreamingDataLoader], None]
CHANGES: dict[str, Change] = {
    "set_epoch": lambda loader: loader.set_epoch(5),
    "set_epoch of the stream": lambda loader: loader.stream.set_epoch(5),
    "load_state_dict": lambda loader: loader.load_state_dict(
        open_loader(blind_stream(), BATCH).state_dict()
    ),
    "a state in the next epoch": lambda loader: loader.load_state_dict(state_after(20)),
    "close": lambda loader: loader.close(),
    "an iterator left early": lambda loader: print(next(iter(loader))["index"]),
}


def state_after(batches: int) -> dict[str, Any]:
    loader = open_loader(blind_stream(), BATCH)
    list(loader)
    list(islice(loader, batches - len(loader)))
    return loader.state_dict()


@pytest.mark.parametrize("change", CHANGES)
def test_what_comes_instead_is_exact(change: str) -> None:
    """Whatever is changed after workers have begun the next epoch."""
    ours, alone = ahead_of(), loader_of(0)
    list(ours), list(alone)
    wait_for_next_epoch(ours)
    CHANGES[change](ours), CHANGES[change](alone)

    for _ in range(2):
        assert indices(ours) == indices(alone)
        assert ours.state_dict() == alone.state_dict()
    ours.set_epoch(99)
    gc.collect()
    assert num_slots_in_use(ours) == 0


def test_a_new_timeout_holds_from_the_next_epoch_on() -> None:
    """What workers have begun has the old one, so they begin anew."""
    loader = ahead_of()
    expected = flat(islice_epochs(loader_of(0), 1))
    list(loader)
    wait_for_next_epoch(loader)
    loader.timeout = PATIENCE_S
    iterator = iter(loader)
    assert isinstance(iterator, BatchIterator)

    assert iterator._queue.timeout_s == PATIENCE_S
    assert [index for batch in iterator for index in batch["index"].tolist()] == expected


@pytest.mark.parametrize("left_at", [13, 15])
def test_leaving_early_cancels_the_next_epoch(left_at: int) -> None:
    """Its slots are free again, and the next iterator begins it anew."""
    ours, alone = ahead_of(), loader_of(0)
    for loader in (ours, alone):
        for at, _batch in enumerate(loader, 1):
            if at == left_at:
                break
        del _batch
    gc.collect()

    assert num_slots_in_use(ours) == 0
    assert indices(ours) == indices(alone)


def test_a_closed_loader_leaves_nothing() -> None:
    """No process, and nothing that builds."""
    loader = ahead_of()
    list(loader)
    assert loader._running is not None
    pids = loader._running.pool.pids
    loader.close()
    before = images_built(loader)

    assert not any(map(is_alive, pids))
    assert images_built(loader) == before
    assert flat(loader) == flat(islice_epochs(loader_of(0), 1))


def islice_epochs(loader: StreamingDataLoader, skipped: int) -> StreamingDataLoader:
    loader.set_epoch(skipped)
    return loader


def test_several_iterators_reach_the_end() -> None:
    """Each delivers its epoch; those after them begin the next, also more than there are now."""
    loader, alone = ahead_of(), loader_of(0)
    first, second = iter(loader), iter(loader)
    expected = [indices(alone), indices(alone)]
    both = [(a["index"].tolist(), b["index"].tolist()) for a, b in zip(first, second, strict=True)]
    assert both == [(batch, batch) for batch in expected[0]]

    four = [iter(loader) for _ in range(4)]
    found = [next(iterator)["index"].tolist() for iterator in four]

    assert found == [expected[1][0]] * 4
    assert indices(four[0]) == expected[1][1:]


def test_copies_and_forks_have_epochs_of_their_own() -> None:
    """A copy stands where the loader does, and takes none of its batches."""
    loader = ahead_of()
    list(loader)
    wait_for_next_epoch(loader)
    expected = flat(islice_epochs(loader_of(0), 1))

    def iterate() -> None:
        assert flat(loader) == expected

    assert flat(copy.copy(loader)) == expected
    child = in_child(iterate)
    assert os.waitpid(child, 0)[1] == 0
    assert flat(loader) == expected


class FailsOnce:
    """A transform that raises at the n-th image that its process transforms."""

    def __init__(self, at: int, error: Exception) -> None:
        self.left, self.error = at, error

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Return the image."""
        self.left -= bool(image.any())  # not the black one that transforms are tried on
        if self.left == 0:
            self.left = -1
            raise self.error
        return image


# With one worker, the sixth sample of the second epoch.
SOON = CAMERAS * (FRAMES + 6) - 1


def test_an_error_belongs_to_its_epoch() -> None:
    """The epoch before it is whole, and the batches before it are delivered."""
    stream = open_stream(image_transforms=FailsOnce(SOON, KeyError("no such thing")))
    loader = open_loader(stream, BATCH, num_workers=1, prefetch_factor=DEPTH)
    expected = flat(islice_epochs(open_loader(blind_stream(), BATCH), 1))
    assert sorted(flat(loader)) == list(range(FRAMES))
    found: list[int] = []
    with pytest.raises(KeyError, match="no such thing"):
        found.extend(index for batch in loader for index in batch["index"].tolist())

    assert found == expected[:BATCH]
    assert loader.state_dict()["position"] == BATCH


def test_an_episode_is_quarantined_in_its_epoch() -> None:
    """The epoch before it still has its frames; the next one has others in their places."""
    error = VideoFileError("damaged while the run went on")
    assert isinstance(error, DatasetError)
    stream = open_stream(image_transforms=FailsOnce(SOON, error), on_bad_episode="quarantine")
    loader = open_loader(stream, BATCH, num_workers=1, prefetch_factor=DEPTH)
    assert sorted(flat(loader)) == list(range(FRAMES))
    assert loader.state_dict()["quarantined"] == []
    second, third = flat(loader), flat(loader)
    bad = loader.state_dict()["quarantined"]

    assert len(bad) == 1
    # The batch before the one that failed was delivered as planned.
    assert second == order_of(loader, 1)[:BATCH] + order_of(loader, 1, bad)[BATCH:]
    assert third == order_of(loader, 2, bad)


def order_of(loader: StreamingDataLoader, epoch: int, bad: Sequence[int] = ()) -> list[int]:
    """The dataset-wide indices of an epoch's frames, as the plan has them."""
    plan = loader.stream.plan(epoch).replace(quarantined=bad)
    episodes, frames = plan.slice(0, plan.num_frames)
    stream = loader.stream
    assert isinstance(stream, StreamingLeRobotDataset)
    starts = np.asarray(stream.meta.episodes["dataset_from_index"])
    return list(map(int, starts[episodes] + frames))


@pytest.mark.parametrize("name", ["h264_long_gop", "images", "h264_bframes"])
@pytest.mark.parametrize("budget", [0, "1MiB", "auto"])
def test_any_memory_and_codec_goes_on(name: str, budget: int | str) -> None:
    """With nothing kept, little, and all frames of the selection."""
    stream = open_stream(FIXTURES / name, frame_cache_bytes=budget)
    loader = open_loader(stream, 3, num_workers=2, prefetch_factor=DEPTH)
    items = LeRobotDataset("some/name", root=FIXTURES / name, return_uint8=True)
    seen = []
    for _ in range(2):
        for batch in loader:
            assert_equals_map_style(batch, items)
            seen.extend(batch["index"].tolist())

    assert sorted(seen) == sorted([*range(len(items)), *range(len(items))])
