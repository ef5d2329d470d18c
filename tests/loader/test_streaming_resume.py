# SPDX-License-Identifier: Apache-2.0
"""P4: a state goes on anywhere, on any topology, and proves it."""

from __future__ import annotations

import json
import random
from itertools import chain, islice
from typing import Any

import pytest

from robostream.errors import StateError
from tests.fixture_datasets import FIXTURES
from tests.loader.streams import blind_stream, flat, indices, open_loader
from tests.parameters import long_except

FRAMES = 62
Topology = tuple[int, int, int]
TOPOLOGIES: list[Topology] = [(2, 8, 3), (1, 16, 0), (4, 4, 0), (3, 5, 0), (1, 5, 5), (1, 1, 0)]


def run(
    topology: Topology, state: dict[str, Any] | None, steps: int | None
) -> tuple[list[set[int]], dict[str, Any]]:
    """Run some steps on a topology; return each step's frames and the state all ranks agree on."""
    world_size, batch_size, workers = topology
    delivered: list[list[list[int]]] = []
    states = []
    for rank in range(world_size):
        stream = blind_stream(rank=rank, world_size=world_size, lanes=12)
        loader = open_loader(stream, batch_size, num_workers=workers)
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        iterator = iter(loader)
        delivered.append(indices(islice(iterator, steps)))
        states.append(loader.state_dict())
        iterator.close()  # type: ignore[attr-defined]
    assert all(other == states[0] for other in states)
    return [set().union(*map(set, step)) for step in zip(*delivered, strict=True)], states[0]


@pytest.mark.parametrize("seed", long_except(range(8), 1))  # each starts dozens of processes
def test_elastic_resume_loses_and_repeats_nothing(seed: int) -> None:
    """Interrupted at random steps and continued on random topologies, an epoch is exact."""
    rng = random.Random(seed)
    state, delivered = None, []
    while True:
        steps = rng.randint(1, 3)
        batches, state = run(rng.choice(TOPOLOGIES), state, steps)
        delivered += [index for batch in batches for index in batch]
        if state["epoch"] > 0:
            break

    # Only the completion of the last step to equal ranks may deliver a frame again.
    assert set(delivered) == set(range(FRAMES))
    assert len(delivered) - FRAMES < 4


def test_receipts_of_a_resumed_run_equal_those_of_one_uninterrupted() -> None:
    """The state at a position is the same whatever ran before it."""
    _, straight = run((1, 16, 0), None, 3)
    _, first = run((2, 8, 3), None, 1)
    _, second = run((4, 4, 0), first, 1)
    _, third = run((1, 1, 0), second, 16)

    assert third == straight


@pytest.mark.parametrize("workers", long_except([0, 1, 2, 3, 5], 0, 3))
def test_state_is_exact_with_prefetch_in_flight(workers: int) -> None:
    """What workers have built ahead does not count."""
    expected = indices(open_loader(blind_stream(), 4))
    loader = open_loader(blind_stream(), 4, num_workers=workers, prefetch_factor=4)
    iterator = iter(loader)
    for step in range(1, 6):
        next(iterator)
        state = loader.state_dict()
        resumed = open_loader(blind_stream(), 4)
        resumed.load_state_dict(state)

        assert indices(resumed) == expected[step:]


def test_a_finished_epoch_is_the_start_of_the_next() -> None:
    """The state after the last batch begins the next epoch, and runs on."""
    loader = open_loader(blind_stream(), 8)
    list(loader)
    state = loader.state_dict()
    resumed = open_loader(blind_stream(), 8)
    resumed.load_state_dict(state)

    assert (state["epoch"], state["position"]) == (1, 0)
    assert flat(resumed) == flat(loader)


def test_only_the_epoch_of_the_state_begins_in_its_middle() -> None:
    """Later epochs are whole, with kept workers and without."""
    loader = open_loader(blind_stream(), 8)
    list(islice(iter(loader), 3))
    for workers, persistent in ((0, None), (3, False), (1, True)):
        resumed = open_loader(blind_stream(), 8, num_workers=workers, persistent_workers=persistent)
        resumed.load_state_dict(loader.state_dict())

        assert [len(flat(resumed)) for _ in range(3)] == [FRAMES - 24, FRAMES, FRAMES]


def test_the_references_state_is_accepted() -> None:
    """{"batches_consumed", "batch_size"} counts batches of this world size since epoch 0."""
    loader = open_loader(blind_stream(), 8)
    both = [*indices(loader), *indices(loader)]
    resumed = open_loader(blind_stream(), 8)
    resumed.load_state_dict({"batches_consumed": 11, "batch_size": 8})

    assert indices(resumed) == both[11:]


def test_the_dataset_itself_resumes_sample_by_sample() -> None:
    """A stream iterated directly has a state too, good for any topology."""
    expected = [sample["index"].item() for sample in blind_stream()]
    stream = blind_stream()
    head = [sample["index"].item() for sample in islice(stream, 17)]
    resumed = blind_stream()
    resumed.load_state_dict(stream.state_dict())
    loader = open_loader(blind_stream(), 5)
    loader.load_state_dict(stream.state_dict())

    assert head + [sample["index"].item() for sample in resumed] == expected
    assert head + flat(loader) == expected


def test_the_lanes_of_the_state_are_taken_where_none_are_given() -> None:
    """The default number of lanes follows the world size, but a resume keeps the order."""
    first = [open_loader(blind_stream(rank=r, world_size=5), 2) for r in range(5)]
    head = [flat(islice(loader, 3)) for loader in first]
    state = first[0].state_dict()
    loader = open_loader(blind_stream(), 7, num_workers=1)
    next(iter(loader))
    loader.load_state_dict(state)

    assert state["lanes"] == 10
    assert sorted([*chain(*head), *flat(loader)]) == list(range(FRAMES))


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"seed": 1}, "seed"),
        ({"lanes": 24}, "number of lanes"),
        ({"episode_pool_size": 2}, "pool size"),
        ({"episodes": [0, 1]}, "selection of episodes"),
        ({"shuffle": False}, "shuffle"),
        ({"root": FIXTURES / "h264_bframes"}, "dataset"),
    ],
)
def test_a_state_of_another_order_is_refused(options: dict[str, Any], difference: str) -> None:
    """The message names the difference."""
    state = open_loader(blind_stream(), 5).state_dict()
    other = open_loader(blind_stream(**options), 5)

    with pytest.raises(StateError, match=difference):
        other.load_state_dict(state)


def test_a_state_that_is_refused_leaves_the_order_as_it_was() -> None:
    """Its lanes too, which are taken from a state that fits."""
    state = blind_stream(seed=1, rank=0, world_size=5).state_dict()
    stream = blind_stream()
    expected = flat(open_loader(blind_stream(), 5))
    with pytest.raises(StateError, match="seed"):
        stream.load_state_dict(state)

    assert (state["lanes"], stream.lanes) == (10, 12)
    assert flat(open_loader(stream, 5)) == expected


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 99},
        {"batches_consumed": -1, "batch_size": 2},
        {"batches_consumed": 1},
        {"batches_consumed": 1, "batch_size": 0},
    ],
)
def test_what_is_no_state_is_refused(state: dict[str, Any]) -> None:
    """Unknown versions and broken numbers are errors."""
    with pytest.raises(StateError):
        open_loader(blind_stream(), 5).load_state_dict(state)
    with pytest.raises(StateError):
        blind_stream().load_state_dict(state)
