# SPDX-License-Identifier: Apache-2.0
"""Bad episodes: raise by default, or go on without them by a rule every topology shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from robostream import LeRobotDataset, StreamingDataLoader
from robostream.decode import build_index
from robostream.errors import DatasetError, SelectionError
from robostream.loader.stream import cursor_of
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import EpochPlan
from robostream.storage import LocalSource
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import (
    assert_equals_map_style,
    flat,
    global_batches,
    open_loader,
    open_stream,
)
from tests.parameters import long_except, long_rows_except

FRAMES = 62
WORKERS = [0, 1, 2, 3, 5]


@pytest.fixture
def broken(tmp_path: Path) -> tuple[Path, list[int]]:
    """A dataset with one truncated video, and the episodes in it."""
    root = copy_of("av1_multifile", tmp_path)
    meta = LeRobotDatasetMetadata("x", root=root)
    path = root / "videos/observation.images.top/chunk-000/file-001.mp4"
    path.write_bytes(path.read_bytes()[:600])
    column = meta.episodes["videos/observation.images.top/file_index"]
    return root, np.flatnonzero(column == 1).tolist()


def frames_of(root: Path, episodes: list[int]) -> set[int]:
    meta = LeRobotDatasetMetadata("x", root=root)
    start, stop = meta.episodes["dataset_from_index"], meta.episodes["dataset_to_index"]
    return {i for e in episodes for i in range(int(start[e]), int(stop[e]))}


def loader_of(
    root: Path,
    rank: int,
    world_size: int,
    batch_size: int,
    workers: int = 0,
    device: str | None = None,
) -> StreamingDataLoader:
    stream = open_stream(
        root, rank=rank, world_size=world_size, lanes=12, on_bad_episode="quarantine"
    )
    return open_loader(stream, batch_size, num_workers=workers, device=device)


def test_the_default_raises(broken: tuple[Path, list[int]]) -> None:
    """Without the option a bad episode ends the epoch."""
    with pytest.raises(DatasetError, match="file-001"):
        list(open_loader(open_stream(broken[0]), 4))


@pytest.mark.parametrize(
    ("workers", "device"),
    long_rows_except([*((n, None) for n in WORKERS), (2, "cpu")], (0, None), (3, None), (2, "cpu")),
)
def test_bad_episodes_are_replaced_and_reported(
    broken: tuple[Path, list[int]],
    workers: int,
    device: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The epoch keeps its length, holds every healthy frame, and says what was left out and why."""
    root, bad = broken
    loader = loader_of(root, 0, 1, 4, workers, device)
    found = flat(loader)
    healthy = set(range(FRAMES)) - frames_of(root, bad)

    assert len(found) == FRAMES
    assert set(found) == healthy
    assert loader.state_dict()["quarantined"] == bad
    assert f"{len(bad)} episodes are quarantined" in caplog.text
    # Once when it is found out, and once at the end: not with each of its episodes.
    assert caplog.text.count("file-001.mp4") == 2


def test_a_state_says_which_episodes_stay_aside(
    broken: tuple[Path, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """Though their files may be whole by now."""
    root, bad = broken
    first = loader_of(root, 0, 1, 4, 0, None)
    list(first)
    caplog.clear()
    loader_of(root, 0, 1, 4, 0, None).load_state_dict(first.state_dict())

    assert f"episodes {', '.join(map(str, bad))} stay quarantined" in caplog.text


def test_a_map_style_item_that_cannot_be_built_is_named(broken: tuple[Path, list[int]]) -> None:
    """Behind a DataLoader nobody knows which one was asked for."""
    root, bad = broken
    item = min(frames_of(root, bad))

    with pytest.raises(
        DatasetError, match=rf"file-001.*\(while building item {item}: episode {bad[0]}, frame 0\)"
    ):
        LeRobotDataset("x", root=root)[item]


@pytest.mark.parametrize("budget", [0, 10**8])
def test_one_damaged_picture_sets_its_episode_aside_and_no_other(
    tmp_path: Path, budget: int
) -> None:
    """Episodes of the same file, read and decoded together with it, are delivered, and right."""
    root = copy_of("av1_multifile", tmp_path)
    whole = LeRobotDataset("x", root=root, return_uint8=True)
    items = {i: whole[i] for i in range(len(whole))}
    key = whole.meta.video_keys[0]
    files = whole.meta.episodes[f"videos/{key}/file_index"]
    shared = int(np.flatnonzero(np.bincount(files) > 1)[0])
    bad = int(np.flatnonzero(files == shared)[0])
    damage_a_packet(root / whole.meta.get_video_file_path(bad, key), frame=1)
    stream = open_stream(
        root, on_bad_episode="quarantine", frame_cache_bytes=budget, return_uint8=True
    )
    loader = open_loader(stream, 8)
    found = []
    for batch in loader:
        for place, index in enumerate(batch["index"].tolist()):
            found.append(index)
            for camera in whole.meta.camera_keys:
                assert torch.equal(batch[camera][place], items[index][camera])

    assert loader.state_dict()["quarantined"] == [bad]
    # Frames of the bad episode that were delivered before it was found out are right, too.
    assert len(found) == FRAMES
    assert set(found) >= set(range(FRAMES)) - frames_of(root, [bad])
    assert min(frames_of(root, [bad])) + 1 not in found


def damage_a_packet(path: Path, frame: int) -> None:
    """Give the first unit of a frame's packet a type that means nothing."""
    at = int(build_index(LocalSource(path)).byte_offsets[frame])
    content = bytearray(path.read_bytes())
    content[at] = content[at] & ~0x78 | 9 << 3
    path.write_bytes(content)


@pytest.mark.parametrize("workers", long_except(WORKERS[1:], 3))
def test_bad_episodes_found_by_different_workers(
    tmp_path: Path, workers: int, whole: LeRobotDataset
) -> None:
    """Damage to several episodes and cameras: one list, one order, right values for any workers."""
    root = copy_of("av1_multifile", tmp_path)
    top, wrist = whole.meta.video_keys
    damage_a_packet(root / whole.meta.get_video_file_path(0, top), frame=3)
    damage_a_packet(root / whole.meta.get_video_file_path(4, wrist), frame=5)
    runs = []
    for count in (0, workers):
        stream = open_stream(root, lanes=5, on_bad_episode="quarantine")
        loader = open_loader(stream, 4, num_workers=count)
        epochs = [list(loader) for _ in range(2)]
        runs.append(([flat(batches) for batches in epochs], loader.state_dict()))
        for batch in epochs[0] + epochs[1]:
            assert_equals_map_style(batch, whole)
    (first, second), state = runs[1]

    assert runs[0] == runs[1]
    assert len(state["quarantined"]) == 2
    assert len(first) == len(second) == FRAMES
    # The second epoch knows the list from its start: all of it is one version's.
    assert second == order_of(whole, cursor_of(stream).current_plan(1))


@pytest.fixture(scope="module")
def whole() -> LeRobotDataset:
    return LeRobotDataset("x", root=FIXTURES / "av1_multifile", return_uint8=True)


def order_of(dataset: LeRobotDataset, plan: EpochPlan) -> list[int]:
    starts = dataset.meta.episodes["dataset_from_index"]
    episodes, frames = plan.slice(0, plan.num_frames)
    return [int(starts[e]) + int(f) for e, f in zip(episodes, frames, strict=True)]


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_that_meet_a_bad_episode_one_after_the_other(
    broken: tuple[Path, list[int]], workers: int
) -> None:
    """The second iterator goes on too, although the first has set the same episode aside since."""
    root, bad = broken
    loader = loader_of(root, 0, 1, 4, workers)
    first, second = iter(loader), iter(loader)
    found = [flat(first), flat(second)]

    assert found[0] == found[1]
    assert loader.state_dict()["quarantined"] == bad


def test_runs_that_know_the_list_agree_on_every_topology(broken: tuple[Path, list[int]]) -> None:
    """With the list in the state, the global batches are the same sets, and so are receipts."""
    root, _ = broken
    first = loader_of(root, 0, 1, 12)
    list(first)
    known = first.state_dict()
    runs = []
    for world_size in (1, 2, 3):
        loaders = [
            loader_of(root, rank, world_size, 12 // world_size) for rank in range(world_size)
        ]
        for loader in loaders:
            loader.load_state_dict(known)
        runs.append(global_batches(loaders)[:-1])
        states = [loader.state_dict() for loader in loaders]
        assert all(state == states[0] for state in states)

    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_of_bad_episodes_only_is_an_error(
    broken: tuple[Path, list[int]], workers: int
) -> None:
    """If all episodes are quarantined, that is an error; whoever finds it out."""
    root, bad = broken
    stream = open_stream(root, episodes=bad, on_bad_episode="quarantine")

    with pytest.raises(SelectionError, match="quarantined, so no frame is left"):
        list(open_loader(stream, 4, num_workers=workers))
