# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import SelectionError
from robostream.loader.sampler import KeptFrames, keep_frames


def _keep(lengths: list[int], episodes: Any = None, **options: Any) -> KeptFrames:
    stops = np.cumsum(lengths)
    options = {"drop_first": 0, "drop_last": 0, "relative": None} | options
    return keep_frames(stops - lengths, stops, episodes, **options)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    drops=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    data=st.data(),
)
def test_kept_frames_are_those_a_plain_loop_keeps(
    lengths: list[int], drops: tuple[int, int], data: st.DataObject
) -> None:
    """Numbers 0 to len-1 are the frames of the chosen episodes, less the dropped, in order."""
    episodes = data.draw(st.none() | st.lists(st.integers(0, len(lengths) - 1), max_size=15))
    starts = np.cumsum(lengths) - lengths
    want = [
        start + frame
        for episode, (start, length) in enumerate(zip(starts, lengths, strict=True))
        if episodes is None or episode in episodes
        for frame in range(drops[0], length - drops[1])
    ]
    if not want:
        with pytest.raises(SelectionError, match="No valid frames remain"):
            _keep(lengths, episodes, drop_first=drops[0], drop_last=drops[1])
        return

    kept = _keep(lengths, episodes, drop_first=drops[0], drop_last=drops[1])

    assert len(kept) == len(want)
    assert kept.indices(np.arange(len(kept))) == want


def test_episodes_the_drops_empty_are_skipped_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An episode that keeps nothing is left out, and the log names it."""
    with caplog.at_level(logging.WARNING):
        kept = _keep([5, 2, 1], drop_last=2)

    assert kept.indices(np.arange(3)) == [0, 1, 2]
    assert len(caplog.records) == 1
    assert "Episodes 1, 2 of the 3 chosen: skipped" in caplog.text


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([0, 3], "names episode 3, but the dataset has 3 episodes"),
        ([-1], "names episode -1"),
        (list(range(20)), "12 and 7 more"),
        ([0.0, 1.5], "whole numbers"),
        ([True, False, True], "whole numbers"),
        ([], "No valid frames remain: 0 episodes were chosen of 3"),
    ],
)
def test_episodes_that_do_not_exist_are_refused(episodes: list[Any], message: str) -> None:
    """A wrong episode number is named in the error; negatives do not count from the end."""
    with pytest.raises(SelectionError, match=message):
        _keep([4, 4, 4], episodes)


def test_bounds_that_do_not_belong_together_are_refused() -> None:
    """Starts and stops come in equal numbers, and no episode ends before it starts."""
    options: dict[str, Any] = {"drop_first": 0, "drop_last": 0, "relative": None}

    with pytest.raises(SelectionError, match="got 2 and 1"):
        keep_frames([0, 4], [4], None, **options)
    with pytest.raises(SelectionError, match="episode 1 ends at frame 3, before its start 4"):
        keep_frames([0, 4], [4, 3], None, **options)


@pytest.mark.parametrize("drops", [{"drop_first": -1}, {"drop_last": -2}])
def test_negative_drops_are_refused(drops: dict[str, int]) -> None:
    """Frames can be dropped, not added."""
    with pytest.raises(SelectionError, match="must be >= 0"):
        _keep([4], **drops)


def test_a_subset_is_addressed_by_its_own_rows() -> None:
    """With the rows of a subset, indices are rows; an episode outside it is refused at once."""
    rows = {frame: row for row, frame in enumerate([*range(4), *range(10, 15)])}

    kept = _keep([4, 6, 5], [0, 2], drop_last=1, relative=rows)

    assert kept.indices(np.arange(len(kept))) == [0, 1, 2, 4, 5, 6, 7]
    with pytest.raises(SelectionError, match="no row for frames of episode 1"):
        _keep([4, 6, 5], None, relative=rows)
