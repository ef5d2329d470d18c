# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from robostream.errors import MetadataError
from robostream.meta import DEFAULT_FEATURES, is_depth
from robostream.write.frames import features_to_record

CAMERA: dict[str, Any] = {"dtype": "image", "shape": (4, 6, 3), "names": None}


def test_the_default_features_come_last() -> None:
    """The order is the user's features, then the five every dataset has."""
    features = features_to_record({"cam": CAMERA}, use_videos=False)

    assert list(features) == ["cam", *DEFAULT_FEATURES]


def test_a_camera_of_one_channel_is_marked_as_depth() -> None:
    """Readers need the mark, so it is set even if the user forgot it."""
    entry = {**CAMERA, "shape": (4, 6, 1)}
    features = {"a": entry, "b": {**entry, "info": {"is_depth_map": False}}}
    marked = features_to_record(features, use_videos=False)

    assert is_depth(marked["a"])
    assert is_depth(marked["b"])
    assert features["b"]["info"] == {"is_depth_map": False}


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("a/b", {"dtype": "float32", "shape": (1,)}, "contains '/'"),
        ("x", {"dtype": "float99", "shape": (1,)}, "dtype 'float99'"),
        ("x", {"dtype": "float32", "shape": ()}, "at least one axis"),
        ("x", {"dtype": "float32", "shape": (1, 1, 1, 1, 1, 1)}, "6 axes"),
        ("x", {"dtype": "string", "shape": (2,)}, r"string wants shape \(1,\)"),
        ("speech", {"dtype": "language", "shape": (1,)}, "language_persistent and language_events"),
        ("cam", {"dtype": "image", "shape": (4, 6, 4)}, "3 channels"),
        ("cam", {"dtype": "image", "shape": (4, 6, 3), "info": {"is_depth_map": True}}, "depth"),
        ("cam", {"dtype": "video", "shape": (4, 6, 3)}, "use_videos is False"),
    ],
)
def test_a_feature_that_cannot_be_recorded_raises(
    name: str, entry: dict[str, Any], message: str
) -> None:
    """A feature the format cannot store is an error before anything is written."""
    with pytest.raises(MetadataError, match=message):
        features_to_record({name: entry}, use_videos=False)
