# SPDX-License-Identifier: Apache-2.0
"""Validation on held-out episodes: each of their frames once, in the order of the dataset."""

from __future__ import annotations

import pytest

from robostream import LeRobotDatasetMetadata, split_episodes
from tests.loader.streams import (
    AV1,
    blind_stream,
    flat,
    indices,
    open_loader,
    open_stream,
)

META = LeRobotDatasetMetadata("some/name", AV1)
SPLIT = split_episodes(META, val=0.4, seed=1)


def frames_of(episodes: list[int]) -> list[int]:
    """The dataset-wide indices of the frames of some episodes, in order."""
    first, after = META.episodes["dataset_from_index"], META.episodes["dataset_to_index"]
    return [i for episode in episodes for i in range(first[episode], after[episode])]


def test_both_halves_together_are_the_dataset() -> None:
    """What is trained on and what is validated on share no frame, and no frame is missing."""
    train, val = (
        flat(open_loader(blind_stream(episodes=half), 4)) for half in (SPLIT.train, SPLIT.val)
    )

    assert sorted(train) == frames_of(SPLIT.train)
    assert sorted(val) == frames_of(SPLIT.val)
    assert sorted(train + val) == list(range(META.total_frames))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_is_the_same_every_time(workers: int) -> None:
    """Without shuffling each pass has the frames in order, whatever seed, epoch and workers."""
    stream = open_stream(episodes=SPLIT.val, shuffle=False, seed=workers)
    loader = open_loader(stream, 4, num_workers=workers)
    passes = [list(loader) for _ in range(3)]
    loader.close()

    assert [flat(batches) for batches in passes] == [frames_of(SPLIT.val)] * 3
    assert indices(passes[0]) == indices(passes[2])
    camera = META.camera_keys[0]
    assert all((a[camera] == b[camera]).all() for a, b in zip(*passes[:2], strict=True))


def test_ranks_share_an_evaluation() -> None:
    """Each reads a run of the frames in order, the same in every pass; only the tail repeats."""
    ranks = [
        open_loader(blind_stream(episodes=SPLIT.val, shuffle=False, rank=rank, world_size=3), 2)
        for rank in range(3)
    ]
    first, second = ([flat(loader) for loader in ranks] for _ in range(2))
    wanted = frames_of(SPLIT.val)

    assert first == second
    assert sorted({i for of_rank in first for i in of_rank}) == wanted
    assert sum(map(len, first)) - len(wanted) < 3
    assert all(of_rank[:-1] == sorted(of_rank[:-1]) for of_rank in first)
