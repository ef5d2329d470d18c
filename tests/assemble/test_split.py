# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import LeRobotDataset, StreamingLeRobotDataset
from robostream.assemble.split import check_no_leakage, split_episodes
from robostream.errors import SelectionError
from robostream.meta import EpisodeTable, LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES

ROOT = FIXTURES / "av1_multifile"
META = LeRobotDatasetMetadata("some/name", root=ROOT)


def described(tasks: list[list[str]]) -> Any:
    """Metadata of episodes with these tasks, and of nothing else."""
    numbers = {"episode_index": np.arange(len(tasks))}
    texts = {"tasks": pa.array(tasks, pa.list_(pa.string()))}
    table = EpisodeTable(numbers, texts)
    return SimpleNamespace(repo_id="some/name", total_episodes=len(tasks), episodes=table)


def numbered(tasks: list[int]) -> Any:
    """Metadata of episodes, each with one of a few tasks."""
    return described([[f"task {number}"] for number in tasks])


def test_the_split_of_a_dataset_stays() -> None:
    """The same everywhere, for ever: these are the episodes of this seed."""
    meta = numbered([number % 3 for number in range(20)])

    assert split_episodes(meta, val=0.2, seed=7).val == [2, 12, 15, 19]
    assert split_episodes(meta, val=0.2, seed=7, by=None).val == [7, 8, 15, 19]


@given(
    tasks=st.lists(st.integers(0, 5), min_size=2, max_size=80),
    val=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**70),
    by=st.sampled_from(["task", None]),
)
def test_halves_are_disjoint_complete_and_of_the_asked_size(
    tasks: list[int], val: float, seed: int, by: str | None
) -> None:
    """Each episode is in one half; the share is right to within the rounding."""
    split = split_episodes(numbered(tasks), val, seed, by)

    assert sorted(split.train + split.val) == list(range(len(tasks)))
    assert split.train == sorted(split.train)
    assert split.val == sorted(split.val)
    assert len(split.val) == min(max(round(val * len(tasks)), 1), len(tasks) - 1)


@given(
    tasks=st.lists(st.integers(0, 5), min_size=2, max_size=80),
    val=st.floats(0.05, 0.5),
    seed=st.integers(0, 100),
)
def test_each_task_is_split_in_proportion(tasks: list[int], val: float, seed: int) -> None:
    """A task's share differs from the dataset's by less than one episode."""
    held_out = split_episodes(numbered(tasks), val, seed).val
    share = len(held_out) / len(tasks)
    of_task, held_out_of_task = Counter(tasks), Counter(tasks[number] for number in held_out)

    for task, count in of_task.items():
        assert abs(held_out_of_task[task] - share * count) < 1


def test_the_order_of_an_episodes_tasks_does_not_matter() -> None:
    """LeRobot writes them in no particular order."""
    first = described([["a", "b"], ["b"], ["a", "b"], ["b"]] * 5)
    second = described([["b", "a"], ["b"], ["a", "b"], ["b"]] * 5)

    assert split_episodes(first, 0.3) == split_episodes(second, 0.3)


def test_seeds_give_different_splits() -> None:
    """Several seeds hold out several sets of episodes."""
    meta = numbered([0] * 50)

    assert len({tuple(split_episodes(meta, 0.2, seed).val) for seed in range(10)}) == 10


def test_only_the_given_episodes_are_split() -> None:
    """A selection is split as a dataset is; unpacking gives the two halves."""
    train, val = split_episodes(META, 0.5, episodes=[1, 2, 4])

    assert sorted(train + val) == [1, 2, 4]
    assert len(val) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"val": 0}, "val must be a number above 0; got 0"),
        ({"val": 1}, "val must be a share above 0 and below 1; got 1"),
        ({"val": "10%"}, "val must be a number above 0; got '10%'"),
        ({"seed": -1}, "seed must be >= 0"),
        ({"by": "robot"}, "by must be \"task\" or None; got 'robot'"),
        ({"episodes": [3]}, "want 2 episodes or more to split, one for each half; got 1"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    """Each error names the argument and what it must be."""
    with pytest.raises(SelectionError, match=message):
        split_episodes(META, **arguments)


def test_a_table_without_tasks_is_split_without_them() -> None:
    """The error names the way out."""
    table = EpisodeTable({"episode_index": np.arange(4)}, {})
    meta: Any = SimpleNamespace(repo_id="some/name", total_episodes=4, episodes=table)

    with pytest.raises(SelectionError, match=r"no column 'tasks'.*pass by=None"):
        split_episodes(meta)
    assert len(split_episodes(meta, by=None).train) == 3


def open_stream(episodes: list[int] | None, root: Path = ROOT) -> StreamingLeRobotDataset:
    return StreamingLeRobotDataset(
        "some/name", root, episodes, camera_keys=[], rank=0, world_size=1
    )


def test_halves_of_a_split_do_not_leak() -> None:
    """Lists, streams and datasets of two halves pass."""
    split = split_episodes(META, 0.4)

    check_no_leakage(split.train, split.val)
    check_no_leakage(open_stream(split.train), open_stream(split.val))
    check_no_leakage(open_stream(split.train), split.val)


@pytest.mark.parametrize("kind", ["lists", "streams", "datasets"])
def test_an_episode_in_both_halves_is_an_error(kind: str) -> None:
    """It is named, whatever kind of reader has it; no selection means all episodes."""
    pairs: dict[str, tuple[Any, Any]] = {
        "lists": ([0, 1, 2, 3, 4], [1, 4]),
        "streams": (open_stream([0, 1, 4]), open_stream([4, 1])),
        "datasets": (LeRobotDataset("some/name", ROOT), open_stream([1, 4])),
    }

    with pytest.raises(SelectionError, match=r"found \[1, 4\] in both"):
        check_no_leakage(*pairs[kind])


def test_two_datasets_share_no_episode() -> None:
    """Equal numbers in different datasets are different episodes."""
    check_no_leakage(open_stream([0, 1]), open_stream([0, 1], FIXTURES / "images"))
