# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import SelectionError
from robostream.plan import EpochPlan
from robostream.plan.epoch import LineDigests, digest
from robostream.plan.line import Line, Segments, WholeEpisodes, lay_segments


def lay_whole(lengths: list[int], ids: list[int], *, shuffle: bool) -> Line:
    content = WholeEpisodes(np.array(lengths, dtype=np.int64), np.array(ids, dtype=np.int64))
    return content.lay(seed=3, epoch=1, lanes=1, shuffle=shuffle)


@given(lengths=st.lists(st.integers(0, 9), min_size=1).filter(any), shuffle=st.booleans())
def test_the_line_holds_every_frame_once(lengths: list[int], shuffle: bool) -> None:
    """Places and frames match one to one, both ways; empty episodes take no place."""
    line = lay_whole(lengths, [3 * e for e in range(len(lengths))], shuffle=shuffle)
    places = np.arange(line.num_frames)
    episodes, frames = line.locate(places)
    found = sorted(zip(episodes.tolist(), frames.tolist(), strict=True))

    assert found == [(3 * e, f) for e, length in enumerate(lengths) for f in range(length)]
    for episode in set(episodes.tolist()):
        ((start, stop),) = line.spans(episode)
        assert places[episodes == episode].tolist() == list(range(start, stop))


def test_without_a_key_the_line_is_the_dataset() -> None:
    """Unshuffled, episodes and frames come as they are numbered."""
    line = lay_whole([2, 0, 1], [4, 5, 9], shuffle=False)
    episodes, frames = line.locate(np.arange(3))

    assert episodes.tolist() == [4, 4, 9]
    assert frames.tolist() == [0, 1, 0]
    assert line.spans(9) == [(2, 3)]


def test_segments_are_parts_of_episodes_and_may_repeat() -> None:
    """A line is any list of runs of frames; an episode has a span for each."""
    runs = Segments(*np.array([[7, 2, 7], [3, 0, 1], [2, 2, 3], [1, 4, 2]]))
    line = lay_segments(runs)
    episodes, frames = line.locate(np.arange(line.num_frames))

    assert episodes.tolist() == [7, 7, 2, 2, 7, 7, 7]
    assert frames.tolist() == [3, 4, 0, 4, 1, 3, 5]
    assert line.spans(7) == [(0, 2), (4, 7)]
    assert line.ids.tolist() == [2, 7]


@given(
    segments=st.lists(
        st.tuples(*(st.integers(*b) for b in ((0, 5), (0, 9), (1, 9), (1, 4)))), min_size=1
    ),
    data=st.data(),
)
def test_digests_of_stretches_are_those_of_their_frames(
    segments: list[tuple[int, ...]], data: st.DataObject
) -> None:
    """The digest of any stretch of a line adds up over its frames, whatever its segments are."""
    line = lay_segments(Segments(*np.array(segments).T))
    start = data.draw(st.integers(0, line.num_frames))
    stop = data.draw(st.integers(start, line.num_frames))
    expected = digest(*line.locate(np.arange(start, stop)))

    assert LineDigests(line).between(start, stop) % 2**64 == expected


@pytest.mark.parametrize("episode", [5, 6, 99])
def test_unknown_episodes_have_no_place(episode: int) -> None:
    """An episode that was not selected, or has no frame, has no position."""
    plan = EpochPlan([2, 0, 1], episodes=[4, 5, 9], seed=0, epoch=0, lanes=1, pool_size=1)

    assert plan.line.spans(episode) == []
    with pytest.raises(SelectionError, match=f"episode {episode} is not one of the 2 episodes"):
        plan.positions(episode)


@pytest.mark.parametrize(
    ("lengths", "ids"),
    [([1, 1], [3, 3]), ([1, 1], [3, 2]), ([1], [-1]), ([-1], [0]), ([1], [0, 1])],
)
def test_bad_tables_are_refused(lengths: list[int], ids: list[int]) -> None:
    """Ids ascend from 0 without repeats; each has one length of 0 or more."""
    with pytest.raises(ValueError, match="want"):
        lay_whole(lengths, ids, shuffle=False)


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_nothing_to_order_is_an_error(lengths: list[int]) -> None:
    """An epoch without frames would never end."""
    with pytest.raises(SelectionError, match="has a frame to order"):
        lay_whole(lengths, list(range(len(lengths))), shuffle=True)
