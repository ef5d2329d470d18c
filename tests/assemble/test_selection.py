# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble.selection import AbsoluteToRelative, FrameSelection, select_episodes
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES

META = LeRobotDatasetMetadata("some/name", root=FIXTURES / "av1_multifile")
LENGTHS = META.episodes["length"].tolist()


def test_all_episodes_by_default() -> None:
    """No selection means every episode."""
    assert select_episodes(META, None, None).tolist() == [0, 1, 2, 3, 4]


def test_duplicates_and_order_do_not_matter() -> None:
    """Rows come in storage order, each once, whatever the list looked like."""
    assert select_episodes(META, [3, 1, 3], None).tolist() == [1, 3]


def test_strangers_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers that do not exist, negative ones too, are named in a warning."""
    assert select_episodes(META, [-1, 2, 9], None).tolist() == [2]
    assert "[-1, 9]" in caplog.text


def test_a_filter_is_intersected_with_the_list() -> None:
    """Both conditions hold for what is chosen."""
    chosen = select_episodes(META, [0, 1, 2], lambda row: row["length"] > 5)

    assert chosen.tolist() == [0, 1]


@pytest.mark.parametrize("episodes", [[], [99]])
def test_an_empty_selection_is_refused(episodes: list[int]) -> None:
    """Nothing to read is an error, not an empty epoch."""
    with pytest.raises(SelectionError, match="no episode of some/name is selected"):
        select_episodes(META, episodes, None)


@pytest.mark.parametrize("episodes", [[True, False], [1.9], "12", 2, [None], [[1, 2]]])
def test_what_is_no_list_of_numbers_is_refused(episodes: Any) -> None:
    """A mask, a fraction or a text is not read as some other episodes."""
    with pytest.raises(SelectionError, match="want episodes as a list of whole numbers"):
        select_episodes(META, episodes, None)


@pytest.mark.parametrize("episodes", [np.array([3, 1]), [np.int32(3), 1], range(1, 4, 2), {1, 3}])
def test_any_kind_of_whole_numbers_is_taken(episodes: Any) -> None:
    """What numpy and Python hold numbers in will do, and numbers beyond 64 bits are strangers."""
    assert select_episodes(META, episodes, None).tolist() == [1, 3]
    assert select_episodes(META, [*episodes, 10**30], None).tolist() == [1, 3]


@given(chosen=st.sets(st.integers(0, 4), min_size=1))
def test_items_and_indices_are_inverse(chosen: set[int]) -> None:
    """Item -> (episode, frame) -> dataset-wide index -> item comes back to the start."""
    selection = FrameSelection(META, np.array(sorted(chosen)))
    mapping = AbsoluteToRelative(selection)
    starts = META.episodes["dataset_from_index"]
    expected = [(e, f) for e in sorted(chosen) for f in range(LENGTHS[e])]

    assert [selection.locate(i) for i in range(selection.num_frames)] == expected
    assert [mapping[int(starts[e]) + f] for e, f in expected] == list(range(len(expected)))
    assert list(mapping) == [int(starts[e]) + f for e, f in expected]
    assert len(mapping) == selection.num_frames


def test_negative_items_count_from_the_end() -> None:
    """Python's habit; beyond the ends is an IndexError, so plain loops end."""
    selection = FrameSelection(META, np.array([1, 2]))

    assert selection.locate(-1) == (2, 0)
    with pytest.raises(IndexError, match="the selection has 10 frames"):
        selection.locate(10)
    with pytest.raises(SelectionError, match=r"a whole number.* got 1\.5"):
        selection.locate(1.5)  # type: ignore[arg-type]


def test_a_frame_outside_the_selection_has_no_item() -> None:
    """The mapping knows only selected frames."""
    mapping = AbsoluteToRelative(FrameSelection(META, np.array([1, 3])))

    assert 0 not in mapping
    assert LENGTHS[0] in mapping
    assert sum(LENGTHS[:2]) not in mapping
