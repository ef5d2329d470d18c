# SPDX-License-Identifier: Apache-2.0
"""The contract of docs/loading.md: what iterators, states and epochs do, on loader and stream.

A loader with batches of one sample and the stream itself are asked the same questions.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from robostream import LeRobotDataset, StreamingDataLoader, StreamingLeRobotDataset
from robostream.errors import StateError
from tests.loader.streams import (
    AV1,
    assert_equals_map_style,
    blind_stream,
    flat,
    open_loader,
    open_stream,
)

FRAMES = 62
Reader = StreamingDataLoader | StreamingLeRobotDataset
READERS: dict[str, Callable[[], Reader]] = {
    "loader": lambda: open_loader(blind_stream()),
    "loader with workers": lambda: open_loader(blind_stream(), num_workers=1),
    "stream": blind_stream,
}
EPOCHS = [[sample["index"].item() for sample in stream] for stream in [blind_stream()] * 5]


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]()


def take(samples: Iterator[Any] | Reader, count: int | None = None) -> list[int]:
    return [sample["index"].item() for sample in islice(samples, count)]


def place(reader: Reader) -> tuple[int, int]:
    state = reader.state_dict()
    return state["epoch"], state["position"]


def state_at(epoch: int, position: int) -> dict[str, Any]:
    loader = open_loader(blind_stream())
    loader.set_epoch(epoch)
    take(loader, position)
    return loader.state_dict()


def test_epochs_follow_each_other(reader: Reader) -> None:
    """After the last sample the place is the start of the next epoch."""
    for epoch in range(3):
        assert take(reader) == EPOCHS[epoch]
        assert place(reader) == (epoch + 1, 0)


def test_the_place_moves_with_delivery_not_with_iter(reader: Reader) -> None:
    """Beginning an iterator changes nothing; what is built ahead does not count."""
    iter(reader), iter(reader)
    assert place(reader) == (0, 0)
    iterator = iter(reader)
    for position in range(1, 5):
        next(iterator)
        assert place(reader) == (0, position)
    iter(reader)
    assert place(reader) == (0, 4)


def test_iter_fixes_the_place_at_that_moment(reader: Reader) -> None:
    """What happens between `iter` and the first `next` does not matter to the iterator."""
    early = iter(reader)
    take(reader, 3)
    reader.set_epoch(4)

    assert take(early) == EPOCHS[0]
    assert take(reader) == EPOCHS[4]


def test_an_epoch_left_early_is_followed_by_the_next(reader: Reader) -> None:
    """After an epoch was left early, the next iterator begins the next epoch."""
    take(reader, 5)
    assert place(reader) == (0, 5)
    assert take(reader, 5) == EPOCHS[1][:5]
    assert take(reader) == EPOCHS[2]


def test_a_second_iterator_disturbs_none(reader: Reader) -> None:
    """Each delivers its epoch whole; the reader's place follows the one that delivered last."""
    first = iter(reader)
    head = take(first, 5)
    second = iter(reader)
    assert take(second, 3) == EPOCHS[1][:3]
    assert place(reader) == (1, 3)
    head += take(first, 5)
    assert place(reader) == (0, 10)
    assert take(second) == EPOCHS[1][3:]
    assert head + take(first) == EPOCHS[0]
    assert place(reader) == (1, 0)


def test_two_iterators_begun_together_deliver_the_same(reader: Reader) -> None:
    """When the second one begins, the first has not delivered yet, so the place has not moved."""
    pairs = zip(iter(reader), iter(reader), strict=True)

    assert [(a["index"].item(), b["index"].item()) for a, b in pairs] == [
        (index, index) for index in EPOCHS[0]
    ]


def test_a_loop_inside_a_loop(reader: Reader) -> None:
    """The inner loops run whole epochs, the outer one goes on to its end."""
    outer = []
    for number, sample in enumerate(reader):
        outer.append(sample["index"].item())
        if number % 20 == 0:
            assert take(reader) == EPOCHS[1]

    assert outer == EPOCHS[0]


def test_a_state_goes_on_where_it_stands(reader: Reader) -> None:
    """Only the epoch of the state is short; the state survives without a delivery."""
    reader.load_state_dict(state_at(1, 20))
    assert place(reader) == (1, 20)
    assert take(reader) == EPOCHS[1][20:]
    assert take(reader) == EPOCHS[2]


def test_an_unused_iterator_uses_no_state_up(reader: Reader) -> None:
    """The next iterator goes on at the loaded place, until one has delivered from it."""
    reader.load_state_dict(state_at(0, 20))
    iter(reader)
    first, second = iter(reader), iter(reader)
    assert take(first, 2) == EPOCHS[0][20:22]
    assert take(second, 2) == EPOCHS[0][20:22]
    assert take(reader) == EPOCHS[1]


def test_a_state_loaded_in_a_loop_is_for_the_next(reader: Reader) -> None:
    """An iterator that has begun goes on; the next one begins at the loaded state."""
    iterator = iter(reader)
    take(iterator, 5)
    reader.load_state_dict(state_at(3, 7))
    assert place(reader) == (3, 7)
    assert take(iterator) == EPOCHS[0][5:]
    assert take(reader) == EPOCHS[3][7:]


def test_a_loaded_state_left_early_is_followed_by_the_next_epoch(reader: Reader) -> None:
    """An iterator has delivered from the state, so the state is used up."""
    reader.load_state_dict(state_at(1, 20))
    take(reader, 1)

    assert take(reader) == EPOCHS[2]


def test_set_epoch_begins_there(reader: Reader) -> None:
    """set_epoch may go forwards, backwards, or name the same epoch twice."""
    for epoch in (3, 0, 0, 1):
        reader.set_epoch(epoch)
        assert place(reader) == (epoch, 0)
        assert take(reader) == EPOCHS[epoch]
    assert take(reader) == EPOCHS[2]


def test_set_epoch_in_a_loop_is_for_the_next(reader: Reader) -> None:
    """The loop goes on; the next one begins the epoch, also the one that runs."""
    for epoch in (4, 0, 1):
        reader.set_epoch(0)
        iterator = iter(reader)
        take(iterator, 5)
        reader.set_epoch(epoch)
        assert take(iterator) == EPOCHS[0][5:]
        assert take(reader) == EPOCHS[epoch]


def test_set_epoch_after_a_state(reader: Reader) -> None:
    """The epoch of the state keeps its place, once; another goes to its own start."""
    reader.load_state_dict(state_at(1, 20))
    reader.set_epoch(1)
    assert take(reader) == EPOCHS[1][20:]
    reader.set_epoch(1)
    assert take(reader) == EPOCHS[1]
    reader.load_state_dict(state_at(1, 20))
    reader.set_epoch(2)
    assert take(reader) == EPOCHS[2]


def test_a_usual_resumed_training_loop(reader: Reader) -> None:
    """Load, then set_epoch for every epoch: the first is short, the others whole."""
    reader.load_state_dict(state_at(1, 20))
    found = []
    for epoch in range(1, 4):
        reader.set_epoch(epoch)
        found.append(take(reader))

    assert found == [EPOCHS[1][20:], EPOCHS[2], EPOCHS[3]]


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_stands_there_too_and_goes_its_own_way(reader: Reader, way: str) -> None:
    """Neither notices what the other does from then on."""
    take(reader)
    take(reader, 5)
    twin = COPIES[way](reader)
    assert place(twin) == place(reader) == (1, 5)
    assert take(twin) == EPOCHS[2]
    assert place(reader) == (1, 5)
    twin.set_epoch(0)
    assert take(reader) == EPOCHS[2]
    assert take(twin) == EPOCHS[0]
    reader.load_state_dict(state_at(4, 9))
    assert place(twin) == (1, 0)


# A loader and its stream.


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_set_on_the_stream_reaches_its_loaders(workers: int) -> None:
    """Once each, also after they were made, and whoever comes last decides."""
    stream = blind_stream()
    loaders = [open_loader(stream, num_workers=workers), open_loader(stream)]
    stream.set_epoch(2)
    assert [take(loader) for loader in loaders] == [EPOCHS[2]] * 2
    stream.load_state_dict(state_at(1, 20))
    assert place(loaders[0]) == (1, 20)
    assert [take(loader) for loader in loaders] == [EPOCHS[1][20:]] * 2
    assert [take(loader) for loader in loaders] == [EPOCHS[2]] * 2
    stream.set_epoch(1)
    loaders[0].set_epoch(3)
    assert [take(loader) for loader in loaders] == [EPOCHS[3], EPOCHS[1]]
    stream.load_state_dict({"batches_consumed": 8, "batch_size": 9})
    assert take(loaders[0]) == EPOCHS[1][9:]


def test_set_epoch_on_the_stream_again_and_again() -> None:
    """The same epoch, set before every loop, is delivered every time; so is a resumed one."""
    stream = blind_stream()
    loader = open_loader(stream)
    for _ in range(3):
        stream.set_epoch(1)
        assert take(loader) == EPOCHS[1]
    stream.load_state_dict(state_at(1, 20))
    for expected in (EPOCHS[1][20:], EPOCHS[1], EPOCHS[1]):
        stream.set_epoch(1)
        assert take(loader) == expected


def test_a_loader_made_on_a_resumed_stream() -> None:
    """Only its first epoch is short."""
    stream = blind_stream()
    stream.load_state_dict(state_at(0, 20))
    loader = open_loader(stream, 3)

    assert [len(flat(loader)) for _ in range(3)] == [FRAMES - 20, FRAMES, FRAMES]
    assert flat(open_loader(stream, 3)) == EPOCHS[0]  # made after the place was gone on from


def test_loaders_over_one_stream_do_not_disturb_each_other() -> None:
    """Train and validation, with other batch sizes and workers, nested: each has its own place."""
    stream = blind_stream()
    train = open_loader(stream, 4, num_workers=2)
    found = []
    for number, batch in enumerate(train):
        found += batch["index"].tolist()
        if number % 5 == 1:
            valid = open_loader(stream, 16, num_workers=number % 2)
            assert flat(valid) == EPOCHS[0]
            assert train.state_dict()["position"] == len(found)

    assert found == EPOCHS[0]
    assert flat(train) == EPOCHS[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_loader_with_a_larger_batch_leaves_the_first_its_pictures(workers: int) -> None:
    """Memory and decoded pictures are each loader's own."""
    items = LeRobotDataset("some/name", root=AV1, return_uint8=True)
    stream = open_stream()
    loader = open_loader(stream, 4, num_workers=workers)
    found = []
    for number, batch in enumerate(loader):
        if number == 3:
            assert sorted(flat(open_loader(stream, 32, num_workers=workers))) == list(range(62))
        assert_equals_map_style(batch, items)
        found += batch["index"].tolist()

    assert sorted(found) == list(range(62))


def test_a_streams_own_place_and_a_loaders_are_two() -> None:
    """Iterating the stream does not move a loader, nor the reverse."""
    stream = blind_stream()
    loader = open_loader(stream)
    take(stream, 5)
    assert take(loader) == EPOCHS[0]
    take(stream)
    assert take(loader) == EPOCHS[1]


def test_the_state_of_a_stream_that_a_loader_reads_is_refused() -> None:
    """The loader knows better; iterating the stream itself makes it its own again."""
    stream = blind_stream()
    take(open_loader(stream), 3)
    with pytest.raises(StateError, match=r"loader\.state_dict"):
        stream.state_dict()
    take(stream, 3)
    assert place(stream) == (0, 3)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_with_nothing_left_to_deliver_ends(workers: int) -> None:
    """Where drop_last drops all that is left after a state, the next loop is the next epoch."""
    loader = open_loader(blind_stream(), 8, drop_last=True, num_workers=workers)
    loader.load_state_dict(state_at(0, 60))

    assert flat(loader) == []
    assert flat(loader) == EPOCHS[1][:56]
