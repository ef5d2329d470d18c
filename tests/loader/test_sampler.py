# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import json
from typing import Any, Literal

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from robostream.errors import StateError
from robostream.loader.sampler import (
    EpisodeAwareSampler,
    SamplerState,
    compute_sampler_state,
)

Shuffle = Literal["uniform", "constant_memory"]
ORDERS: list[bool | Shuffle] = [False, "uniform", "constant_memory"]
orders = st.sampled_from(ORDERS)
lengths = st.lists(st.integers(1, 12), min_size=1, max_size=8)


class FrameNumbers(Dataset[int]):
    """A dataset whose every item is its own index."""

    def __getitem__(self, index: int) -> int:
        return index


def make_sampler(
    lengths: list[int], shuffle: bool | Shuffle = "uniform", seed: int = 0, **options: Any
) -> EpisodeAwareSampler:
    stops = np.cumsum(lengths)
    return EpisodeAwareSampler(stops - lengths, stops, shuffle=shuffle, seed=seed, **options)


@given(lengths=lengths, shuffle=orders, seed=st.integers(0, 2**40), epochs=st.integers(1, 3))
def test_every_epoch_visits_every_kept_frame_once(
    lengths: list[int], shuffle: bool | Shuffle, seed: int, epochs: int
) -> None:
    """An epoch is a permutation of the kept frames, as many as the sampler's length."""
    sampler = make_sampler(lengths, shuffle, seed)

    for _ in range(epochs):
        assert sorted(sampler) == sampler.indices
    assert len(sampler) == len(sampler.indices) == sum(lengths)


@pytest.mark.parametrize("shuffle", ["uniform", "constant_memory"])
def test_epochs_and_seeds_have_orders_of_their_own(shuffle: Shuffle) -> None:
    """Another epoch or another seed is another order; the same two give the same order."""
    first, again = make_sampler([300], shuffle, 7), make_sampler([300], shuffle, 7)
    epochs = [list(first), list(first), list(make_sampler([300], shuffle, 8))]

    assert [list(again), list(again)] == epochs[:2]
    assert len({tuple(epoch) for epoch in epochs}) == 3


@given(lengths=lengths, shuffle=orders, data=st.data())
def test_a_state_resumes_at_any_frame(
    lengths: list[int], shuffle: bool | Shuffle, data: st.DataObject
) -> None:
    """A state taken anywhere continues with exactly the frames not yet handed out."""
    whole = make_sampler(lengths, shuffle, 3)
    endless = list(itertools.chain.from_iterable(list(whole) for _ in range(3)))
    drawn = data.draw(st.integers(0, 2 * len(whole)))
    saved = make_sampler(lengths, shuffle, 3)
    stream = itertools.chain.from_iterable(saved for _ in range(3))
    head = list(itertools.islice(stream, drawn))
    resumed = make_sampler(lengths, shuffle, 3)
    resumed.load_state_dict(saved.state_dict())
    rest = list(itertools.chain.from_iterable(resumed for _ in range(3)))

    assert saved.state_dict() == {"epoch": drawn // len(whole), "start_index": drawn % len(whole)}
    assert (head + rest)[: len(endless)] == endless
    assert len(resumed) == len(whole)


@given(lengths=lengths, shuffle=orders, epoch=st.integers(0, 5))
def test_set_epoch_goes_where_counting_goes(
    lengths: list[int], shuffle: bool | Shuffle, epoch: int
) -> None:
    """Setting an epoch gives the order that iterating up to it gives."""
    counted, jumped = make_sampler(lengths, shuffle), make_sampler(lengths, shuffle)
    for _ in range(epoch):
        list(counted)
    jumped.set_epoch(epoch)

    assert list(jumped) == list(counted)
    assert jumped.state_dict() == {"epoch": epoch + 1, "start_index": 0}


def test_the_uniform_order_is_lerobots() -> None:
    """The order LeRobot 0.6.1 (torch 2.11) gives for the same arguments, pinned."""
    sampler = EpisodeAwareSampler(
        [0, 7, 12], [7, 12, 30], shuffle=True, seed=1000, drop_n_last_frames=1
    )
    first = "0 3 18 19 16 13 12 28 4 20 23 10 24 5 8 26 27 21 9 14 1 7 25 22 17 15 2"
    second = "16 12 3 7 10 18 22 21 1 15 2 14 27 23 28 9 13 26 17 24 0 8 20 19 25 5 4"

    assert list(sampler) == [int(index) for index in first.split()]
    assert list(sampler) == [int(index) for index in second.split()]


def test_the_constant_memory_order_is_pinned() -> None:
    """Checkpoints name places in this order: change it only together with what reads them."""
    sampler = EpisodeAwareSampler(
        [0, 7, 12], [7, 12, 30], shuffle="constant_memory", seed=1000, drop_n_last_frames=1
    )
    first = "12 3 21 5 13 1 18 25 26 28 16 2 7 14 19 8 9 4 23 20 17 27 22 0 24 10 15"

    assert list(sampler) == [int(index) for index in first.split()]


def test_blocks_do_not_show_in_the_order() -> None:
    """A pass longer than one block of positions, begun in the middle, is the same order."""
    sampler = make_sampler([5_000, 5_000], "uniform", 1)
    whole = list(sampler)
    sampler.load_state_dict({"epoch": 0, "start_index": 4_097})

    assert list(sampler) == whole[4_097:]


@pytest.mark.parametrize("shuffle", [False, "constant_memory"])
def test_a_huge_dataset_takes_no_memory_per_frame(shuffle: bool | Shuffle) -> None:
    """With 10^13 frames the first and the last indices of an epoch come at once."""
    frames = 10**13
    sampler = EpisodeAwareSampler([0, frames // 2], [frames // 2, frames], shuffle=shuffle)
    head = list(itertools.islice(sampler, 5_000))
    sampler.load_state_dict({"epoch": 9, "start_index": frames - 5_000})
    tail = list(iter(sampler))

    assert len(set(head)) == len(set(tail)) == 5_000
    assert all(0 <= index < frames for index in head + tail)


def test_an_iteration_left_early_is_followed_by_the_next_epoch() -> None:
    """Breaking off and iterating again moves on, and the old iterator no longer counts."""
    sampler = make_sampler([20])
    left = iter(sampler)
    early = list(itertools.islice(left, 5))
    following = list(itertools.islice(sampler, 3))
    late = list(left)

    assert sampler.state_dict() == {"epoch": 1, "start_index": 3}
    assert early + late == list(make_sampler([20]))
    sampler.set_epoch(1)
    assert list(itertools.islice(sampler, 3)) == following


@pytest.mark.parametrize(
    ("step", "frames", "batch_size", "processes", "want"),
    [
        (7, 100, 10, 2, (1, 40)),
        (11, 105, 10, 2, (1, 100)),
        (0, 100, 10, 2, (0, 0)),
        (5, 100, 10, 2, (1, 0)),
        (3, 2, 8, 4, (3, 0)),
    ],
)
def test_the_state_after_some_steps(
    step: int, frames: int, batch_size: int, processes: int, want: tuple[int, int]
) -> None:
    """The place after a number of steps, worked out by hand (the first two: LeRobot's)."""
    got = compute_sampler_state(step, frames, batch_size, processes)

    assert (got["epoch"], got["start_index"]) == want


sizes = st.tuples(st.integers(1, 5), st.integers(1, 7))


def _steps(start: SamplerState, frames: int, processes: int, batch_size: int) -> list[list[int]]:
    """Return what the ranks read together in each step to the end of the epoch of `start`."""
    ranks = []
    for rank in range(processes):
        sampler = make_sampler([frames])
        sampler.load_state_dict(start)
        batches = BatchSampler(sampler, batch_size, drop_last=False)
        ranks.append(list(BatchSamplerShard(batches, processes, rank)))
    return [list(itertools.chain.from_iterable(batches)) for batches in zip(*ranks, strict=True)]


@given(frames=st.integers(1, 60), first=sizes, second=sizes, data=st.data())
def test_computed_states_are_where_accelerates_ranks_stand(
    frames: int, first: tuple[int, int], second: tuple[int, int], data: st.DataObject
) -> None:
    """Steps read, by any ranks and then by others, are the order up to the computed place.

    What Accelerate reads beyond the last frame are repeats to fill the last step. With equal
    frames per step, each step after the change reads the frames it would have read without it.
    """
    order = list(make_sampler([frames]))
    begin: SamplerState = {"epoch": 0, "start_index": 0}
    unchanged = _steps(begin, frames, *first)
    taken = data.draw(st.integers(0, len(unchanged) - 1))
    place = compute_sampler_state(taken, frames, first[1], first[0])
    resumed = _steps(place, frames, *second)
    more = data.draw(st.integers(0, len(resumed) - 1))
    later = compute_sampler_state(more, frames, second[1], second[0], start=place)
    done = compute_sampler_state(len(resumed), frames, second[1], second[0], start=place)
    read = list(itertools.chain(*unchanged[:taken], *resumed[:more]))

    assert place["epoch"] == later["epoch"] == 0
    assert read == order[: later["start_index"]]
    assert set(read) | set(itertools.chain(*resumed[more:])) == set(order)
    assert done == {"epoch": 1, "start_index": 0}
    if first[0] * first[1] == second[0] * second[1]:
        assert resumed[:-1] == unchanged[taken:-1]


@given(frames=st.integers(1, 60), sizes=sizes, steps=st.tuples(*[st.integers(0, 200)] * 2))
def test_counting_steps_from_a_place_adds_up(
    frames: int, sizes: tuple[int, int], steps: tuple[int, int]
) -> None:
    """With the same sizes, a + b steps lead where a steps and then b steps lead."""
    processes, batch_size = sizes
    place = compute_sampler_state(steps[0], frames, batch_size, processes)

    got = compute_sampler_state(steps[1], frames, batch_size, processes, start=place)

    assert got == compute_sampler_state(sum(steps), frames, batch_size, processes)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_reads_the_order(workers: int) -> None:
    """Any number of worker processes deliver the sampler's order, epoch after epoch."""
    want = make_sampler([15, 8], seed=4)
    loader = DataLoader(
        FrameNumbers(), batch_size=4, num_workers=workers, sampler=make_sampler([15, 8], seed=4)
    )

    for _ in range(2):
        assert torch.cat(list(loader)).tolist() == list(want)


def test_workers_draw_ahead_of_what_is_delivered() -> None:
    """With workers the state says what was handed out; counting steps says what was consumed."""
    sampler = make_sampler([100], seed=4)
    loader = DataLoader(FrameNumbers(), batch_size=4, num_workers=2, sampler=sampler)
    batches = iter(loader)
    consumed = torch.cat([next(batches) for _ in range(3)]).tolist()
    handed_out = sampler.state_dict()
    sampler.load_state_dict(compute_sampler_state(3, len(sampler), 4, 1))

    assert handed_out["start_index"] > 12
    assert consumed + list(sampler) == list(make_sampler([100], seed=4))


# torchdata 0.11 calls a torch function that torch 2.13 has deprecated.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_resumes_exactly(workers: int) -> None:
    """Torchdata's loader keeps the sampler's state of the batches it delivered."""

    def loader() -> StatefulDataLoader[int]:
        sampler = make_sampler([15, 8], seed=4)
        return StatefulDataLoader(
            FrameNumbers(), batch_size=4, num_workers=workers, sampler=sampler
        )

    want = make_sampler([15, 8], seed=4)
    endless = list(want) + list(want)
    first = loader()
    head = torch.cat([*first, *itertools.islice(first, 2)]).tolist()
    second = loader()
    second.load_state_dict(first.state_dict())
    rest = torch.cat(list(second)).tolist()

    assert head + rest == endless


@pytest.mark.parametrize("processes", [1, 2])
def test_accelerate_resumes_once_its_epoch_is_set(processes: int) -> None:
    """Accelerate's own count of epochs cannot silently undo a resume, and the cure works."""
    sampler = make_sampler([20], seed=5)
    epochs = [list(sampler) for _ in range(4)]
    sampler.load_state_dict({"epoch": 2, "start_index": 8})
    loader = prepare_data_loader(
        DataLoader(FrameNumbers(), batch_size=2, sampler=sampler),
        num_processes=processes,
        process_index=0,
        put_on_device=False,
    )
    with pytest.raises(StateError, match=r"set_epoch\(0\) would undo the resume at epoch 2"):
        next(iter(loader))
    loader.set_epoch(2)

    for want in (epochs[2][8:], epochs[3]):
        batches = [want[at : at + 2] for at in range(0, len(want), 2)]
        assert [batch.tolist() for batch in loader] == batches[::processes]


@pytest.mark.parametrize(
    "state",
    [
        {"epoch": 0},
        {"epoch": -1, "start_index": 0},
        {"epoch": 0, "start_index": 21},
        {"epoch": 0, "start_index": -1},
    ],
)
def test_states_of_something_else_are_refused(state: dict[str, int]) -> None:
    """A state that names no place of this sampler is an error, and leaves it as it was."""
    sampler = make_sampler([20])

    with pytest.raises(StateError):
        sampler.load_state_dict(state)
    assert sampler.state_dict() == {"epoch": 0, "start_index": 0}


@given(lengths=lengths, shuffle=orders, epoch=st.integers(0, 5))
def test_a_state_at_the_end_of_an_epoch_is_an_empty_rest(
    lengths: list[int], shuffle: bool | Shuffle, epoch: int
) -> None:
    """As in LeRobot, nothing is left of that epoch, and the next iteration is the next epoch."""
    sampler, following = make_sampler(lengths, shuffle), make_sampler(lengths, shuffle)
    following.set_epoch(epoch + 1)
    end = {"epoch": epoch, "start_index": len(sampler)}
    sampler.load_state_dict(end)

    assert sampler.state_dict() == end
    assert list(sampler) == []
    assert sampler.state_dict() == {"epoch": epoch + 1, "start_index": 0}
    assert list(sampler) == list(following)


def test_the_end_of_an_iteration_is_the_start_of_the_next() -> None:
    """A state taken after the last frame was handed out names the next epoch."""
    sampler = make_sampler([20])
    stream = iter(sampler)
    list(itertools.islice(stream, 20))

    assert sampler.state_dict() == {"epoch": 1, "start_index": 0}
    assert list(stream) == []


def test_numpys_integers_are_numbers_like_any_other() -> None:
    """They give the same order, and states that JSON can hold."""
    numbers = EpisodeAwareSampler(
        np.array([0, 9]), [np.int32(9), np.int32(20)], shuffle=True, seed=np.int64(3)
    )
    numbers.set_epoch(np.int64(1))
    plain = EpisodeAwareSampler([0, 9], [9, 20], shuffle=True, seed=3)
    plain.set_epoch(1)
    state = json.dumps(numbers.state_dict())
    computed = compute_sampler_state(np.int64(2), np.int64(20), np.int32(2), np.int16(3))

    assert list(numbers) == list(plain)
    assert json.loads(state) == {"epoch": 1, "start_index": 0}
    assert json.loads(json.dumps(computed)) == compute_sampler_state(2, 20, 2, 3)


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    """Seeds, epochs, drops and counts are checked when they are given, not in the middle."""
    with pytest.raises(ValueError, match="seed must be >= 0, a whole number"):
        make_sampler([3], seed=value)
    with pytest.raises(ValueError, match="epoch must be >= 0, a whole number"):
        make_sampler([3]).set_epoch(value)
    with pytest.raises(ValueError, match="drop_n_first_frames must be >= 0, a whole number"):
        EpisodeAwareSampler([0], [3], drop_n_first_frames=value)
    with pytest.raises(ValueError, match="step must be >= 0, a whole number"):
        compute_sampler_state(value, 10, 1, 1)
    with pytest.raises(StateError, match=r"start_index must be .* in the sampler state"):
        make_sampler([3]).load_state_dict({"epoch": 0, "start_index": value})


def test_wrong_arguments_are_refused() -> None:
    """Orders, bounds and sizes that mean nothing are errors."""
    with pytest.raises(ValueError, match="'constant_memory', got 'random'"):
        make_sampler([3], "random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dataset_to_indices .* number 1 of it is 9\.5"):
        EpisodeAwareSampler([0, 4], [4, 9.5])
    with pytest.raises(ValueError, match="batch_size must be >= 1, a whole number"):
        compute_sampler_state(1, 10, 0, 1)
