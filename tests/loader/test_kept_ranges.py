# SPDX-License-Identifier: Apache-2.0
"""Trimmed, strided and weighted episodes of one dataset."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from robostream import LeRobotDataset, SelectionError
from tests.loader.streams import (
    AV1,
    assert_equals_map_style,
    blind_stream,
    open_loader,
    open_stream,
)

DELTAS = {"action": [-0.1, 0.0, 0.3], "observation.images.top": [-0.05, 0.0]}


def lengths() -> list[int]:
    return [int(n) for n in blind_stream().meta.episodes["length"]]


@pytest.mark.parametrize("workers", [0, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("deltas", [None, DELTAS])
def test_kept_frames_are_delivered_once_and_whole(
    workers: int, deltas: dict[str, Any] | None
) -> None:
    """Exactly the kept frames, each equal to its map-style item: windows reach beyond a trim."""
    keep = {0: [(1, 4), (6, 9)], 4: [(0, 2)], 3: []}
    stream = open_stream(frames=keep, stride=2, delta_timestamps=deltas, return_uint8=False)
    dataset = LeRobotDataset("x", root=AV1, delta_timestamps=deltas)
    found = []
    loader = open_loader(stream, 4, num_workers=workers)
    for batch in loader:
        assert_equals_map_style(batch, dataset)
        found += zip(batch["episode_index"].tolist(), batch["frame_index"].tolist(), strict=True)
    loader.close()
    wanted = [
        (episode, frame)
        for episode, length in enumerate(lengths())
        for first, stop in keep.get(episode, [(0, length)])
        for frame in range(first, stop, 2)
    ]

    assert sorted(found) == wanted
    assert stream.num_frames == len(wanted)


def test_windows_may_be_clipped_to_the_kept_frames() -> None:
    """`clip_windows` pads where a window leaves the kept range; video and rows alike."""
    stream = open_stream(
        frames={0: [(3, 8)]}, episodes=[0], delta_timestamps=DELTAS, clip_windows=True
    )
    plain = LeRobotDataset("x", root=AV1, episodes=[0], return_uint8=True)
    for batch in open_loader(stream, 2):
        for place, frame in enumerate(batch["frame_index"].tolist()):
            targets = [frame - 2, frame, frame + 6]
            inside = [min(max(target, 3), 7) for target in targets]
            assert batch["action_is_pad"][place].tolist() == [not 3 <= t < 8 for t in targets]
            assert torch.equal(
                batch["action"][place], torch.stack([plain[n]["action"] for n in inside])
            )
            image = plain[max(frame - 1, 3)]["observation.images.top"]
            assert torch.equal(batch["observation.images.top"][place, 0], image)


def test_a_function_may_choose_ranges() -> None:
    """It takes the row of the episode table."""
    stream = blind_stream(frames=lambda row: [(0, max(1, row["length"] - 3))])

    assert stream.num_frames == sum(max(1, length - 3) for length in lengths())


def test_weighted_episodes_come_more_often() -> None:
    """An epoch keeps its length; over epochs an episode comes in proportion to its weight."""
    stream = blind_stream(episode_weights={0: 3.0, 1: 0.0}, lanes=3)
    loader = open_loader(stream, 1)
    found: Counter[int] = Counter()
    for _ in range(30):
        found.update(int(batch["episode_index"]) for batch in loader)
    per_frame = {e: count / lengths()[e] for e, count in found.items()}

    assert stream.num_frames == sum(n for e, n in enumerate(lengths()) if e != 1)
    assert 1 not in per_frame
    assert per_frame[0] / per_frame[2] == pytest.approx(3, rel=0.1)


def test_trimmed_streams_resume_exactly() -> None:
    """In the middle of an epoch, with another batch size; a state of other ranges is refused."""
    options: dict[str, Any] = {"frames": {0: [(2, 9)]}, "stride": 2, "lanes": 3}
    whole = [int(i) for b in open_loader(blind_stream(**options), 1) for i in b["index"]]
    loader = open_loader(blind_stream(**options), 3)
    iterator = iter(loader)
    first = [int(i) for _ in range(3) for i in next(iterator)["index"]]
    again = open_loader(blind_stream(**options), 2)
    again.load_state_dict(loader.state_dict())

    assert first + [int(i) for b in again for i in b["index"]] == whole
    with pytest.raises(Exception, match="skip_epoch"):
        blind_stream(frames={0: [(0, 9)]}, stride=2, lanes=3).load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": {0: [(5, 3)]}}, "first < stop"),
        ({"frames": {0: [(0, 999)]}}, "must end by frame"),
        ({"frames": lambda row: 3}, "list of"),
        ({"frames": lambda row: (0, 3)}, r"a list of \(first, stop\) pairs.*got \(0, 3\)"),
        ({"frames": lambda row: [(0, -3)]}, "empty to leave the episode out"),
        ({"frames": {7: [(0, 3)]}}, "frames has an entry of episode 7, but .* has 5 episodes"),
        ({"episode_weights": {7: 2.0}}, "episode_weights has an entry of episode 7"),
        ({"frames": lambda row: []}, "no frame"),
        ({"stride": 0}, "stride"),
        ({"episode_weights": {0: -1}}, "episode_weights"),
        ({"episode_weights": lambda row: float("nan")}, "episode_weights"),
    ],
)
def test_bad_ranges_are_named(options: dict[str, Any], message: str) -> None:
    """The error names the argument, and the episode if there is one."""
    with pytest.raises(SelectionError, match=message):
        blind_stream(**options)
