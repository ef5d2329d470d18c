# SPDX-License-Identifier: Apache-2.0
"""Mixtures: one order for any ranks, workers and batches; exact resume; changed weights."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from robostream import MixtureDataset, SelectionError, Source, StateError, StreamingDataLoader
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.mixtures import NAMES, blind_mixture, open_mixture, pairs
from tests.loader.streams import blind_stream

WEIGHTS = {"av1_multifile": 3.0, "depth": 1.0, "h264_bframes": 1.5, "h264_long_gop": 1, "images": 2}


def loaders(ranks: int, batch_size: int, workers: int = 0, **options: Any) -> list[Any]:
    settings = {"weight_of": WEIGHTS, "lanes": 12} | options
    return [
        StreamingDataLoader(
            blind_mixture(rank=rank, world_size=ranks, **settings),
            batch_size,
            num_workers=workers,
            drop_last=True,
        )
        for rank in range(ranks)
    ]


def steps(ranks: list[Any]) -> list[list[tuple[int, int]]]:
    """The samples of each step of all ranks, in global order."""
    batches = [[pairs([batch]) for batch in loader] for loader in ranks]
    return [
        [pair for group in zip(*step, strict=True) for pair in group]
        for step in zip(*batches, strict=True)
    ]


def flat(steps: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [pair for step in steps for pair in step]


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_and_batches_only_divide_the_order(ranks: int) -> None:
    """Whatever the number of ranks, together they deliver one order."""
    alone = flat(steps(loaders(1, 1)))
    together = flat(steps(loaders(ranks, 2)))

    assert together == alone[: len(together)]
    assert len(alone) - len(together) < 2 * ranks


@pytest.mark.long
def test_workers_only_divide_the_order() -> None:
    """Worker processes deliver the batches that one process does."""
    for built, here in zip(loaders(1, 4, workers=3)[0], loaders(1, 4)[0], strict=True):
        for key, value in here.items():
            same = torch.equal(built[key], value) if torch.is_tensor(value) else built[key] == value
            assert same, key


def test_shares_are_exact_and_laps_even() -> None:
    """Each dataset has its share; frames of a dataset come floor or ceil of its laps."""
    mixture = blind_mixture(weight_of=WEIGHTS, lanes=12)
    (loader,) = loaders(1, 1)
    found = Counter(pairs(loader))

    for number, share in enumerate(mixture.shares):
        times = [count for (dataset, _), count in found.items() if dataset == number]
        assert sum(times) == share.samples
        assert len(times) == share.frames
        assert {int(share.laps), -int(-share.laps // 1)} >= set(times)
    total = sum(WEIGHTS.values())
    for share, weight in zip(mixture.shares, WEIGHTS.values(), strict=True):
        assert share.share == pytest.approx(weight / total, abs=1 / mixture.num_frames)


def test_a_chain_of_resumes_over_topologies_delivers_the_epoch() -> None:
    """2 ranks, then 1, then 3, in the middle of epochs: nothing is skipped or repeated."""
    whole = flat(steps(loaders(1, 1)))
    state: dict[str, Any] | None = None
    delivered: list[tuple[int, int]] = []
    for ranks, batch_size, count in [(2, 3, 5), (1, 4, 9), (3, 2, 7)]:
        current = loaders(ranks, batch_size)
        iterators = []
        for loader in current:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            iterators.append(iter(loader))
        for _ in range(count):
            batches = [pairs([next(iterator)]) for iterator in iterators]
            delivered += [pair for group in zip(*batches, strict=True) for pair in group]
        states = [loader.state_dict() for loader in current]
        assert all(other == states[0] for other in states)
        state = states[0]

    assert delivered == whole[: len(delivered)]
    assert state is not None
    assert state["version"] == 2


@pytest.mark.parametrize("options", [{}, {"frames": {0: [(2, 7)]}, "stride": 2}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_mixture_of_one_is_that_stream(options: dict[str, Any], shuffle: bool) -> None:
    """Order, states and receipts are those of a StreamingLeRobotDataset; either resumes both."""
    stream = blind_stream(**options, shuffle=shuffle)
    source = Source(str(FIXTURES / "av1_multifile"), camera_keys=[], **options)
    mixture = open_mixture([source], shuffle=shuffle)
    states = []
    for opened in (stream, mixture):
        loader = StreamingDataLoader(opened, 4, num_workers=0)
        order = [batch["index"].tolist() for _ in range(2) for batch in loader]
        iterator = iter(loader)
        next(iterator)
        states.append((order, loader.state_dict()))

    assert states[0] == states[1]
    assert states[0][1]["version"] == (2 if options else 1)
    for opened in (stream, mixture):
        loader = StreamingDataLoader(opened, 4, num_workers=0)
        loader.load_state_dict(states[0][1])
        assert next(iter(loader))["index"].tolist() == plan_indices(stream, 2, 4, 8)


def plan_indices(stream: Any, epoch: int, start: int, stop: int) -> list[int]:
    """The own index of each frame at some positions of an epoch."""
    firsts = stream.meta.episodes["dataset_from_index"]
    episodes, frames = stream.plan(epoch).slice(start, stop)
    return [int(firsts[e]) + f for e, f in zip(episodes.tolist(), frames.tolist(), strict=True)]


@pytest.mark.parametrize("place", [0, 1])
def test_a_stream_becomes_a_mixture_with_the_next_epoch(place: int) -> None:
    """And back: datasets may be added to a run of one, and taken away until one is left."""
    stream = blind_stream(on_bad_episode="quarantine")
    loader = StreamingDataLoader(stream, 4, num_workers=0)
    next(iter(loader))
    state = loader.state_dict() | {"quarantined": [3]}
    names = ["h264_bframes"]
    names.insert(place, "av1_multifile")
    mixture = blind_mixture(tuple(names), on_bad_episode="quarantine", lanes=stream.lanes)
    with pytest.raises(StateError, match="skip_epoch=True"):
        mixture.load_state_dict(state)
    mixture.load_state_dict(state, skip_epoch=True)
    found = mixture.state_dict()

    assert (found["epoch"], found["position"], found["since"]) == (1, 0, 1)
    assert found["quarantined"] == [[place, 3]]
    again = blind_stream(on_bad_episode="quarantine", lanes=stream.lanes)
    again.load_state_dict(found)
    assert again.state_dict()["quarantined"] == [3]
    assert again.state_dict()["epoch"] == 1


def run_to(mixture: MixtureDataset, batches: int) -> dict[str, Any]:
    """Return the state after some batches of 4."""
    loader = StreamingDataLoader(mixture, 4, num_workers=0)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    return loader.state_dict()


def test_changed_weights_begin_with_the_next_epoch(caplog: pytest.LogCaptureFixture) -> None:
    """At the start of an epoch they just begin; in the middle they need `skip_epoch`."""
    old = blind_mixture(weights="frames", lanes=4)
    between = run_to(old, -(-old.num_frames // 4))
    middle = run_to(old, 5)
    fresh = StreamingDataLoader(blind_mixture(weights="equal", lanes=4), 4, num_workers=0)

    assert (between["epoch"], between["position"]) == (1, 0)
    fresh.load_state_dict(between)
    assert (fresh.state_dict()["epoch"], fresh.state_dict()["since"]) == (1, 1)
    with pytest.raises(StateError, match=r"position 20 of .* epoch 0.*skip_epoch=True"):
        fresh.load_state_dict(middle)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        fresh.load_state_dict(middle, skip_epoch=True)
    assert f"{old.num_frames - 20} of {old.num_frames} frames are dropped" in caplog.text
    assert fresh.state_dict()["epoch"] == 1
    first = pairs(fresh)
    # Every dataset continues where epoch 0 ended: here, with the first frame of its second lap.
    again = StreamingDataLoader(blind_mixture(weights="equal", lanes=4), 4, num_workers=0)
    again.load_state_dict(json.loads(json.dumps(between)))
    assert pairs(again) == first
    state = again.state_dict()
    later = StreamingDataLoader(blind_mixture(weights="equal", lanes=4), 4, num_workers=0)
    later.load_state_dict(state)
    assert (state["epoch"], state["since"]) == (2, 1)
    assert pairs(later) == pairs(again)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_an_added_dataset_begins_with_the_next_epoch(order: tuple[int, ...]) -> None:
    """The others continue where they were; over the epochs their frames differ by one at most.

    Wherever the new one stands in the list.
    """
    names = NAMES[:2]
    before = blind_mixture(names, epoch=30, lanes=4)
    found = Counter(pairs(StreamingDataLoader(before, 1, num_workers=0)))
    state = run_to(before, 8)
    after = blind_mixture(tuple(NAMES[n] for n in order), epoch=50, lanes=4)
    loader = StreamingDataLoader(after, 1, num_workers=0)
    loader.load_state_dict(state)
    found.update((order[dataset], index) for dataset, index in pairs(loader))

    for dataset, name in enumerate(names):
        frames = blind_stream(FIXTURES / name).num_frames
        times = [found[dataset, index] for index in range(frames)]
        assert max(times) - min(times) <= 1, name
    assert any(dataset == 2 for dataset, _ in found)


def test_a_state_of_other_datasets_is_refused() -> None:
    """Also at the start of an epoch: the seed or no dataset is the same."""
    state = blind_mixture(NAMES[:2]).state_dict()
    with pytest.raises(StateError, match="dataset"):
        blind_mixture(NAMES[2:4]).load_state_dict(state)
    with pytest.raises(StateError, match="seed"):
        blind_mixture(NAMES[:2], seed=7).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_frames_of_the_same_dataset_replace_bad_episodes(tmp_path: Path, workers: int) -> None:
    """A broken video of one dataset: its share stays, the others are as without it, resumable."""
    broken = copy_of("av1_multifile", tmp_path)
    path = broken / "videos/observation.images.top/chunk-000/file-001.mp4"
    path.write_bytes(path.read_bytes()[:600])
    roots = [broken, FIXTURES / "h264_bframes"]
    options: dict[str, Any] = {"on_bad_episode": "quarantine", "lanes": 4}
    mixture = open_mixture([Source(str(root)) for root in roots], **options)
    loader = StreamingDataLoader(mixture, 4, num_workers=workers)
    delivered = pairs(loader)
    state = loader.state_dict()
    loader.close()
    sound = [Source(str(FIXTURES / "av1_multifile"), camera_keys=[]), Source(str(roots[1]))]
    healthy = pairs(StreamingDataLoader(open_mixture(sound, lanes=4), 4, num_workers=0))
    bad = {dataset for dataset, _ in state["quarantined"]}

    assert bad == {0}
    assert [d for d, _ in delivered] == [d for d, _ in healthy]
    assert [p for p in delivered if p[0] == 1] == [p for p in healthy if p[0] == 1]
    again = StreamingDataLoader(
        open_mixture([Source(str(root)) for root in roots], **options), 4, num_workers=0
    )
    again.load_state_dict(state)
    assert again.state_dict()["quarantined"] == state["quarantined"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "size"}, r"weights must be .*Source\(..., weight=2.0\)"),
        ({"weights": "equal", "weight_of": WEIGHTS}, "leave weights='equal' out"),
        ({"normalize": {"observation.state": "mean"}}, "mode of 'observation.state'"),
        ({"weights": {"temperature": 0}}, "temperature"),
        ({"weights": {"temperature": 1e-9}}, "a share above 0 for each dataset"),
        ({"weight_of": dict.fromkeys(NAMES, 1e-9) | {NAMES[0]: 1}}, "which is too long to plan"),
        ({"epoch": 10**12}, "which is too long to plan"),
        ({"epoch": 3}, "epoch must be .*at least one of each of 5 datasets; got 3"),
        ({"epoch": "all"}, "epoch must be .*got 'all'"),
        ({"weights": "equal", "shuffle": False}, "without a shuffle"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    """The error names the argument."""
    with pytest.raises(SelectionError, match=message):
        blind_mixture(**options)
    with pytest.raises(SelectionError, match="give all one"):
        blind_mixture(NAMES[:2], weight_of={"depth": 1.0})
    with pytest.raises(SelectionError, match="sources"):
        MixtureDataset([])


def test_without_a_shuffle_datasets_follow_each_other() -> None:
    """Each frame once, in the order of the sources."""
    found = pairs(StreamingDataLoader(blind_mixture(shuffle=False), 5, num_workers=0))

    assert found == sorted(found)
    assert len(found) == blind_mixture().num_frames


def test_many_laps_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A small dataset with a large weight is named."""
    weights = {"av1_multifile": 1.0, "h264_bframes": 100.0}
    with caplog.at_level(logging.WARNING):
        blind_mixture(("av1_multifile", "h264_bframes"), weight_of=weights)

    assert "h264_bframes" in caplog.text
    assert "laps" in caplog.text
