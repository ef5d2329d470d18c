# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble.spec import window_offsets, window_targets
from robostream.errors import SelectionError

FEATURES = {
    "action": {"dtype": "float32", "shape": (7,), "names": None},
    "note": {"dtype": "string", "shape": (1,), "names": None},
}


@given(
    first=st.integers(0, 20),
    length=st.integers(1, 50),
    offsets=st.lists(st.integers(-80, 80), min_size=1, max_size=9),
    data=st.data(),
)
def test_targets_stay_inside_and_pads_say_where_they_would_not(
    first: int, length: int, offsets: list[int], data: st.DataObject
) -> None:
    """A target outside the limits becomes the first or last frame and is marked as padding."""
    frame = data.draw(st.integers(first, first + length - 1))
    targets, is_pad = window_targets(np.array(offsets), frame, first, first + length)
    wanted = [frame + offset for offset in offsets]

    assert targets.tolist() == [min(max(w, first), first + length - 1) for w in wanted]
    assert is_pad.tolist() == [not first <= w < first + length for w in wanted]


@given(fps=st.integers(1, 240), offsets=st.lists(st.integers(-300, 300), min_size=1))
def test_multiples_of_the_frame_time_are_accepted(fps: int, offsets: list[int]) -> None:
    """Deltas written as n / fps give the offsets n."""
    deltas = {"action": [n / fps for n in offsets]}

    found = window_offsets(deltas, FEATURES, fps=fps, tolerance_s=1e-4)
    assert found["action"].tolist() == offsets


def test_a_delta_between_frames_is_refused_by_name() -> None:
    """The message lists each bad delta and the frame time."""
    with pytest.raises(SelectionError, match=r"1/fps = 0\.05 s.*action: 0\.03 s"):
        window_offsets({"action": [0.0, 0.03, 0.05]}, FEATURES, fps=20, tolerance_s=1e-4)


def test_a_window_of_an_unknown_key_is_refused() -> None:
    """The message lists the keys there are."""
    with pytest.raises(SelectionError, match=r"asks for 'acton'.*action, note"):
        window_offsets({"acton": [0.0]}, FEATURES, fps=20, tolerance_s=1e-4)


def test_windows_of_texts_and_empty_windows_are_refused() -> None:
    """Texts cannot be stacked, and an empty window means nothing."""
    with pytest.raises(SelectionError, match="texts have no windows"):
        window_offsets({"note": [0.0]}, FEATURES, fps=20, tolerance_s=1e-4)
    with pytest.raises(SelectionError, match="is empty"):
        window_offsets({"action": []}, FEATURES, fps=20, tolerance_s=1e-4)
