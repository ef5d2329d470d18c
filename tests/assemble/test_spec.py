# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robostream.assemble.spec import SampleOptions, SampleSpec, make_spec
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES, copy_of, edit_info

TOP, WRIST = "observation.images.top", "observation.images.wrist"
MASK = {"dtype": "bool", "shape": [2], "names": None}


def spec_of(
    root: Path, windows: Mapping[str, Sequence[float]] | None = None, **other: Any
) -> SampleSpec:
    options = SampleOptions(delta_timestamps=windows, tolerance_s=1e-4, **other)
    return make_spec(LeRobotDatasetMetadata("some/name", root=root), options)


def test_a_feature_named_as_the_mask_of_a_window_is_refused(tmp_path: Path) -> None:
    """One of the two would overwrite the other; without the window the feature is read."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info["features"].update(action_is_pad=MASK))

    assert "action_is_pad" in spec_of(root, {"timestamp": [0.0]}).columns
    with pytest.raises(SelectionError, match=r"a feature named action_is_pad.*Leave the window"):
        spec_of(root, {"action": [0.0, 0.2]})


@pytest.mark.parametrize(
    ("resize", "says"),
    [
        (224, r"resize must be \(height, width\).*got 224"),
        ((224,), r"resize must be \(height, width\)"),
        ((224, 224, 3), r"resize must be \(height, width\)"),
        ("64", r"resize must be \(height, width\).*got '64'"),
        ((0, 224), r"two whole numbers from 1 .*got \(0, 224\)"),
        ((224, 224.0), r"two whole numbers .*got \(224, 224.0\)"),
        ((True, 224), r"two whole numbers .*got \(True, 224\)"),
        ((224, 1_000_000), r"from 1 to 8192"),
        ({TOP: 224}, f"resize of {TOP} must be"),
        ({TOP: (224, -1)}, f"resize of {TOP} must be .*got"),
        ({"top": (224, 224)}, f"resize names top, but the cameras of a sample are {TOP}"),
    ],
)
def test_sizes_that_are_none_are_refused(resize: Any, says: str) -> None:
    """The error says what is wanted, what was given, and for which camera."""
    with pytest.raises(SelectionError, match=says):
        spec_of(FIXTURES / "av1_multifile", resize=resize)


def test_a_size_is_for_all_cameras_or_for_those_named() -> None:
    """Lists and numpy's integers will do; a camera that is left out has no size."""
    root, all_cameras = FIXTURES / "av1_multifile", (TOP, WRIST)

    assert spec_of(root).resize == {}
    assert spec_of(root, resize=[np.int64(3), 5]).resize == dict.fromkeys(all_cameras, (3, 5))
    assert spec_of(root, resize=(3, 5), camera_keys=[WRIST]).resize == {WRIST: (3, 5)}
    assert spec_of(root, resize={WRIST: (3, 5)}).resize == {WRIST: (3, 5)}
    with pytest.raises(SelectionError, match=f"resize names {TOP}"):
        spec_of(root, resize={TOP: (3, 5)}, camera_keys=[WRIST])
