# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from robostream.meta import dimension_names


@pytest.mark.parametrize(
    ("dtype", "names", "count", "wanted"),
    [
        ("float32", ["x", "y"], 2, ["x", "y"]),
        ("float32", {"motors": ["x", "y"]}, 2, ["x", "y"]),
        ("float32", {"x": 0, "y": 1}, 2, ["x", "y"]),
        ("float32", ["x", "y"], 3, ["0", "1", "2"]),
        ("float32", None, 2, ["0", "1"]),
        ("float32", None, 1, [""]),
        ("float32", ["speed"], 1, ["speed"]),
        ("video", ["height", "width", "channels"], 3, ["red", "green", "blue"]),
        ("image", None, 1, [""]),
    ],
)
def test_dimensions_have_recorded_names_or_numbers(
    dtype: str, names: Any, count: int, wanted: list[str]
) -> None:
    """Lists, LeRobot's older dicts, wrong lengths and cameras."""
    entry = {"dtype": dtype, "shape": (count,), "names": names}

    assert dimension_names(entry, count) == wanted
