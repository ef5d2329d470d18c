# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from robostream.assemble import SampleSpec, make_spec
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import copy_of, edit_info

MASK = {"dtype": "bool", "shape": [2], "names": None}


def spec_of(root: Path, windows: Mapping[str, Sequence[float]] | None) -> SampleSpec:
    return make_spec(
        LeRobotDatasetMetadata("some/name", root=root),
        camera_keys=None,
        delta_timestamps=windows,
        tolerance_s=1e-4,
        return_uint8=False,
        depth_output_unit="mm",
        image_transforms=None,
    )


def test_a_feature_named_as_the_mask_of_a_window_is_refused(tmp_path: Path) -> None:
    """One of the two would overwrite the other; without the window the feature is read."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info["features"].update(action_is_pad=MASK))

    assert "action_is_pad" in spec_of(root, {"timestamp": [0.0]}).columns
    with pytest.raises(SelectionError, match=r"a feature named action_is_pad.*Leave the window"):
        spec_of(root, {"action": [0.0, 0.2]})
