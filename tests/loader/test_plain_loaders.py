# SPDX-License-Identifier: Apache-2.0
"""A stream in torch's own DataLoader: every epoch is whole, whatever was read before it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.errors import SelectionError, StateError
from tests.fixture_datasets import FIXTURES
from tests.loader.streams import blind_stream, flat, indices, open_loader
from tests.parameters import long_except

FRAMES = list(range(62))
CONTEXTS = ["fork", "forkserver"]


def plain(stream: StreamingLeRobotDataset, workers: int, **options: Any) -> DataLoader[Any]:
    settings: dict[str, Any] = {"multiprocessing_context": "forkserver"} if workers else {}
    return DataLoader(stream, batch_size=5, num_workers=workers, **(settings | options))


class Wrapped(IterableDataset[Any]):
    """A dataset somebody made of a loader."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


def test_a_loader_in_workers_of_another_is_refused() -> None:
    """Each worker would deliver everything."""
    wrapped = Wrapped(open_loader(blind_stream(), 4))
    outer = DataLoader(wrapped, batch_size=None, num_workers=2, multiprocessing_context="fork")

    assert len(list(DataLoader(wrapped, batch_size=None))) == 16
    with pytest.raises(SelectionError, match="would deliver all of its batches"):
        next(iter(outer))


@pytest.mark.parametrize("workers", long_except([0, 2, 3], 2))
def test_an_epoch_after_a_peek_is_whole(workers: int) -> None:
    """`next(iter(stream))` before, between and after."""
    stream = blind_stream()
    loader = plain(stream, workers)
    epochs = []
    for _ in range(3):
        next(iter(stream))
        epochs.append(flat(loader))

    assert [sorted(epoch) for epoch in epochs] == [FRAMES] * 3
    assert len(set(map(tuple, epochs))) == 3


def test_epochs_with_other_loaders_in_between_are_whole_and_differ() -> None:
    """Another loader, another number of workers, none at all, the stream itself."""
    stream = blind_stream()
    epochs = [flat(plain(stream, workers)) for workers in (2, 3, 0, 1, 0)]
    epochs.append([sample["index"].item() for sample in stream])
    epochs.append(flat(plain(stream, 2)))

    assert [sorted(epoch) for epoch in epochs] == [FRAMES] * 7
    assert len({tuple(epoch) for epoch in epochs}) == 7


@pytest.mark.parametrize("context", CONTEXTS)
def test_train_and_validation_over_one_stream(context: str) -> None:
    """Two loaders with workers, one inside the other's loop."""
    stream = blind_stream()
    train = plain(stream, 2, multiprocessing_context=context)
    valid = plain(stream, 1, multiprocessing_context=context)
    found = []
    for number, batch in enumerate(train):
        found += batch["index"].tolist()
        if number in (1, 5):
            assert sorted(flat(valid)) == FRAMES

    assert sorted(found) == FRAMES
    assert sorted(flat(train)) == FRAMES


@pytest.mark.parametrize("context", CONTEXTS)
def test_kept_workers_left_early_begin_a_whole_epoch(context: str) -> None:
    """Persistent workers agree on the next epoch wherever each of them was."""
    loader = plain(blind_stream(), 2, persistent_workers=True, multiprocessing_context=context)
    epochs = []
    for batches in (1, 3, None, 2, None):
        epoch = [i for batch in islice(loader, batches) for i in batch["index"].tolist()]
        epochs.append(epoch)

    assert sorted(epochs[2]) == sorted(epochs[4]) == FRAMES
    assert epochs[2] != epochs[4]


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.mark.long
@pytest.mark.parametrize("way", COPIES)
def test_copies_of_a_stream_stand_apart(way: str) -> None:
    """A copy goes on where the original stood; then neither skips what the other reads."""
    stream = blind_stream()
    flat(plain(stream, 2))
    twin = COPIES[way](stream)
    ours, theirs = (flat(plain(one, 2)) for one in (stream, twin))

    assert sorted(ours) == FRAMES
    assert ours == theirs
    assert flat(plain(stream, 2)) == flat(plain(twin, 2)) != ours


def read_epoch(stream: StreamingLeRobotDataset, results: Any) -> None:
    results.put([sample["index"].item() for sample in stream])


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_stream_in_a_process_of_ones_own(context: str) -> None:
    """Outside of a DataLoader a process that gets the stream reads all of it."""
    how = multiprocessing.get_context(context)
    stream, results = blind_stream(), how.SimpleQueue()
    next(iter(stream))
    processes = [how.Process(target=read_epoch, args=(stream, results)) for _ in "ab"]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()

    assert [sorted(epoch) for epoch in found] == [FRAMES] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_set_on_the_stream_reaches_the_next_epoch(workers: int) -> None:
    """set_epoch and load_state_dict between epochs count, also the same epoch again."""
    stream = blind_stream()
    loader = plain(stream, workers)
    first = flat(loader)
    flat(loader)
    again = []
    for _ in range(2):
        stream.set_epoch(0)
        again.append(flat(loader))
    state = open_loader(blind_stream(), 20)
    next(iter(state))
    stream.load_state_dict(state.state_dict())

    assert again == [first] * 2
    assert len(flat(loader)) == 42
    assert sorted(flat(loader)) == FRAMES


@pytest.mark.parametrize("consumed", long_except([0, 4, 13, 30], 13))
def test_batches_consumed_go_on_into_later_epochs(consumed: int) -> None:
    """Resumed by a count of batches, this epoch and the next are those of the run before."""
    loader = plain(blind_stream(), 2)
    epochs = [indices(loader) for _ in range(4)]
    batches = [batch for epoch in epochs for batch in epoch]
    stream = blind_stream()
    stream.load_state_dict({"batches_consumed": consumed, "batch_size": 5})
    resumed = plain(stream, 2)

    number = len(epochs[0])
    left = number - consumed % number
    assert indices(resumed) == batches[consumed : consumed + left]
    assert indices(resumed) == batches[consumed + left : consumed + left + number]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumed_late_goes_on_to_the_next_epoch(workers: int) -> None:
    """The epoch after the one of the state follows it."""
    loader = StatefulDataLoader(blind_stream(), batch_size=5, num_workers=workers)
    for _ in range(3):
        list(loader)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    state = loader.state_dict()
    rest, following = indices(iterator), indices(loader)
    resumed = StatefulDataLoader(blind_stream(), batch_size=5, num_workers=workers)
    resumed.load_state_dict(state)

    assert indices(resumed) == rest
    assert indices(resumed) == following


def test_a_repeated_torch_seed_repeats_the_epoch() -> None:
    """Workers find their epoch by the seed torch draws; the same seed is the same epoch."""
    loader = plain(blind_stream(), 2)
    epochs = []
    for _ in range(2):
        torch.manual_seed(7)
        epochs.append(flat(loader))

    assert epochs[0] == epochs[1]
    assert sorted(epochs[0]) == FRAMES
    assert flat(loader) != epochs[0]


def stateful(workers: int, **options: Any) -> StatefulDataLoader[Any]:
    return StatefulDataLoader(blind_stream(**options), batch_size=5, num_workers=workers)


def state_after(batches: int, workers: int, **options: Any) -> dict[str, Any]:
    """The state of a StatefulDataLoader that has delivered some batches."""
    loader = stateful(workers, **options)
    list(islice(loader, batches))
    state: dict[str, Any] = loader.state_dict()
    return state


@pytest.mark.parametrize(
    ("workers", "changed", "message"),
    [
        (0, {"seed": 7}, r"seed \(seed\): 42 in the state, 7 here"),
        (0, {"world_size": 2}, "world_size=1 and 1 reading processes per rank.*here they are 2"),
        pytest.param(
            2, {"seed": 7}, r"seed \(seed\): 42 in the state, 7 here", marks=pytest.mark.long
        ),
        pytest.param(2, {"episode_pool_size": 2}, "pool_size", marks=pytest.mark.long),
        pytest.param(2, {"shuffle": False}, "shuffle", marks=pytest.mark.long),
        (2, {"lanes": 5}, "lanes"),
        pytest.param(2, {"episodes": [0, 1]}, "selection", marks=pytest.mark.long),
        pytest.param(2, {"root": FIXTURES / "h264_bframes"}, "fingerprint", marks=pytest.mark.long),
        (2, {"world_size": 2}, "world_size=1 and 2 reading processes per rank.*here they are 2"),
    ],
)
def test_a_stateful_loader_refuses_a_state_of_another_order(
    workers: int, changed: dict[str, Any], message: str
) -> None:
    """The state of each worker is checked as that of a StreamingDataLoader is."""
    loader = stateful(workers, **changed)
    loader.load_state_dict(state_after(4, workers, seed=42))

    with pytest.raises(StateError, match=message):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_after_an_epoch_is_checked_too(workers: int) -> None:
    """It stands at the end of an epoch of another order."""
    loader = stateful(workers, seed=7)
    loader.load_state_dict(state_after(100, workers, seed=42))

    with pytest.raises(StateError, match="seed"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_states_of_earlier_versions_are_refused(workers: int) -> None:
    """They say neither of which dataset they are nor of which order."""
    state = state_after(4, workers)
    snapshots = state["_snapshot"]["_worker_snapshots"].values() if workers else [state]
    for snapshot in snapshots:
        own = snapshot["fetcher_state"]["dataset_iter_state"]
        kept = {key: own[key] for key in ("epoch", "worker", "delivered")}
        snapshot["fetcher_state"]["dataset_iter_state"] = kept | {"start": own["position"]}
    loader = stateful(workers)
    loader.load_state_dict(state)

    with pytest.raises(StateError, match=r"has no fingerprint.*earlier version.*start afresh"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_takes_the_lanes_of_its_state(workers: int) -> None:
    """As a StreamingDataLoader does where none are given."""
    loader = stateful(workers, lanes=4)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    resumed = stateful(workers)
    resumed.load_state_dict(loader.state_dict())

    assert indices(resumed) == indices(iterator)
