# SPDX-License-Identifier: Apache-2.0
"""P1, P2: exactly once, disjoint, covering, equal counts; one order for every topology."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from robostream import StreamingDataLoader
from robostream.errors import SelectionError, StateError
from tests.loader.streams import blind_stream, flat, global_batches, indices, open_loader
from tests.parameters import long_except

FRAMES = 62


def loaders_of(world_size: int, batch_size: int, **options: object) -> list[StreamingDataLoader]:
    return [
        open_loader(blind_stream(rank=rank, world_size=world_size, lanes=12), batch_size, **options)  # type: ignore[arg-type]
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("world_size", long_except([1, 2, 3, 4], 1, 3))
@pytest.mark.parametrize(("drop_last", "workers"), [(True, 0), (False, 0), (False, 1)])
def test_ranks_share_the_epoch_exactly(world_size: int, drop_last: bool, workers: int) -> None:
    """Together the ranks deliver each frame once (the tail dropped, or completed), step by step."""
    loaders = loaders_of(world_size, 5, drop_last=drop_last, num_workers=workers)
    found = [i for step in global_batches(loaders) for i in step]
    step_size = 5 * world_size
    if drop_last:
        assert len(found) == len(set(found)) == FRAMES // step_size * step_size
    else:
        assert set(found) == set(range(FRAMES))
        assert len(found) == -(-FRAMES // world_size) * world_size


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_equal_global_batches_hold_equal_frames(world_size: int) -> None:
    """12 samples a step are the same 12 on any number of ranks."""
    expected = global_batches(loaders_of(1, 12))

    assert global_batches(loaders_of(world_size, 12 // world_size))[:-1] == expected[:-1]


@pytest.mark.parametrize("workers", long_except([1, 2, 3, 5], 3))
def test_workers_do_not_change_the_order(workers: int) -> None:
    """Any number of workers: the same batches, three epochs on."""
    expected = open_loader(blind_stream(), 5)
    loader = open_loader(blind_stream(), 5, num_workers=workers, prefetch_factor=3)
    for _ in range(3):
        assert indices(loader) == indices(expected)


def test_epochs_differ_and_follow_each_other() -> None:
    """Each epoch has its own order, the one set_epoch names."""
    loader = open_loader(blind_stream(), 8)
    epochs = [flat(loader) for _ in range(3)]
    again = open_loader(blind_stream(), 8)
    again.set_epoch(2)

    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == list(range(FRAMES)) for epoch in epochs)
    assert flat(again) == epochs[2]


def test_an_epoch_left_early_is_followed_by_the_next() -> None:
    """A new iterator is a new epoch, as torch users expect."""
    loader = open_loader(blind_stream(), 8)
    next(iter(loader))
    other = open_loader(blind_stream(), 8)
    other.set_epoch(1)

    assert flat(loader) == flat(other)


def test_seeds_differ() -> None:
    """The seed is part of the order."""
    assert flat(open_loader(blind_stream(seed=1), 8)) != flat(open_loader(blind_stream(seed=2), 8))


@pytest.mark.parametrize("workers", long_except([0, 2, 3], 0, 2))
def test_no_shuffle_is_dataset_order(workers: int) -> None:
    """One rank reads front to back; two read a contiguous half each."""
    one = flat(open_loader(blind_stream(shuffle=False), 8, num_workers=workers))
    streams = [blind_stream(shuffle=False, rank=rank, world_size=2) for rank in (0, 1)]
    halves = [flat(open_loader(stream, 8, num_workers=workers)) for stream in streams]

    assert one == list(range(FRAMES))
    assert halves == [list(range(31)), list(range(31, 62))]


def test_only_selected_episodes_are_delivered() -> None:
    """`episodes` and `episode_filter` are honoured, and counted."""
    stream = blind_stream(episodes=[0, 1, 4], episode_filter=lambda row: row["length"] > 10)

    assert stream.episodes == [0, 4]
    assert (stream.num_frames, stream.num_episodes) == (38, 2)
    found = flat(open_loader(stream, 4))
    assert sorted(found) == [*range(17), *range(41, 62)]


@pytest.mark.parametrize("workers", long_except([0, 1, 2, 3], 0, 2))
@pytest.mark.parametrize("persistent", [False, True])
def test_a_plain_data_loader_delivers_exactly_once(workers: int, persistent: bool) -> None:
    """Every epoch covers the dataset, and epochs advance, kept workers or not."""
    if persistent and not workers:
        persistent = False
    loader = DataLoader(
        blind_stream(),
        batch_size=5,
        num_workers=workers,
        persistent_workers=persistent,
        multiprocessing_context="forkserver" if workers else None,
    )
    epochs = [flat(loader) for _ in range(3)]

    assert all(sorted(epoch) == list(range(FRAMES)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("consumed", long_except([1, 4, 9], 4))
def test_a_plain_data_loader_resumes_by_batches(workers: int, consumed: int) -> None:
    """A state that counts batches, loaded with as many workers, goes on with the next batch."""
    loader = DataLoader(blind_stream(), batch_size=5, num_workers=workers)
    expected = indices(loader)
    stream = blind_stream()
    stream.load_state_dict({"batches_consumed": consumed, "batch_size": 5})
    resumed = DataLoader(stream, batch_size=5, num_workers=workers)

    assert indices(resumed) == expected[consumed:]
    assert sorted(flat(resumed)) == list(range(FRAMES))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_resumes(workers: int) -> None:
    """The loader of torchdata saves and restores the stream worker by worker."""
    expected = indices(StatefulDataLoader(blind_stream(), batch_size=5, num_workers=workers))
    loader = StatefulDataLoader(blind_stream(), batch_size=5, num_workers=workers)
    iterator = iter(loader)
    head = [next(iterator)["index"].tolist() for _ in range(4)]
    state = loader.state_dict()
    resumed = StatefulDataLoader(blind_stream(), batch_size=5, num_workers=workers)
    resumed.load_state_dict(state)

    assert head + indices(resumed) == expected


def test_the_state_of_a_stream_read_by_workers_is_refused() -> None:
    """The dataset cannot see what worker processes delivered, so it says so."""
    stream = blind_stream()
    list(DataLoader(stream, batch_size=5, num_workers=1))

    with pytest.raises(StateError, match="StreamingDataLoader"):
        stream.state_dict()


def test_a_batch_larger_than_the_dataset_with_drop_last_is_refused() -> None:
    """A selection without frames is an error at once."""
    with pytest.raises(SelectionError, match="nothing would ever be delivered"):
        open_loader(blind_stream(), 63, drop_last=True)


def test_what_is_dropped_is_said_with_the_argument_that_does_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So that who does not want it knows what to change."""
    next(iter(open_loader(blind_stream(), 5, drop_last=True)))

    assert "drop_last=True: the last 2 of 62 frames" in caplog.text
    assert "with drop_last=False they are" in caplog.text


def test_lengths() -> None:
    """len() counts batches of the loader and samples of the rank."""
    loader = loaders_of(4, 5)[1]

    assert len(loader) == 4
    assert len(loader.stream) == 16
    assert len(list(loader)) == 4
