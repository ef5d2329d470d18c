# SPDX-License-Identifier: Apache-2.0
"""A source of a mixture: its arguments are checked when it is made."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from robostream import Source
from robostream.errors import SelectionError


def test_a_source_holds_plain_values() -> None:
    """Lists, arrays and numpy numbers become tuples and Python numbers; a copy is equal."""
    source = Source(
        "org/a",
        episodes=np.arange(2),
        frames={np.int64(0): [[3, 9], (12, 13)]},
        episode_weights={1: np.float32(0.5)},
        weight=2,
        feature_map={"state": "observation.state", "act": ["action", ["x", "y"]]},
    )

    assert source.episodes == (0, 1)
    assert source.frames == {0: ((3, 9), (12, 13))}
    assert source.episode_weights == {1: 0.5}
    assert (source.weight, source.stride, source.group) == (2.0, 1, None)
    assert source.feature_map == {"state": "observation.state", "act": ("action", ("x", "y"))}
    assert pickle.loads(pickle.dumps(source)) == source


def test_secrets_are_not_printed() -> None:
    """A token and the options of a store appear neither in the text of a source nor in errors."""
    source = Source("org/a", token="hf_secret", storage_options={"secret": "hidden"})
    with pytest.raises(SelectionError) as error:
        Source("org/a", storage_options="hidden")  # type: ignore[arg-type]

    assert "hf_secret" not in repr(source)
    assert "hidden" not in repr(source) + str(error.value)


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("stride", 0, "stride of source 'org/a' must be >= 1"),
        ("stride", 2.0, "a whole number"),
        ("weight", 0, "weight of source 'org/a' must be a number above 0"),
        ("weight", float("inf"), "finite"),
        ("weight", float("nan"), "weight of source"),
        ("weight", True, "a number above 0"),
        ("group", 3, "a text"),
        ("root", 3, "root must be a path"),
        ("episodes", [0.5], "whole numbers"),
        ("episode_filter", "yes", "callable"),
        ("transform", 3, "transform of source 'org/a' must be callable"),
        ("camera_keys", "top", "a list of names"),
        ("frames", [(0, 5)], "ranges by episode"),
        ("frames", {-1: [(0, 5)]}, "an episode in frames"),
        ("frames", {0: [(5, 5)]}, "0 <= first < stop"),
        ("frames", {0: [(0, 5), (4, 9)]}, "do not overlap"),
        ("frames", {0: [3]}, "episode 0"),
        ("episode_weights", {0: -1}, "a number of 0 or more"),
        ("episode_weights", [1.0], "weights by episode"),
        ("feature_map", ["a"], "common keys by own key"),
        ("feature_map", {"a": 3}, "own key to a common key"),
        ("feature_map", {"a": ("b", "xy")}, "list of names"),
        ("feature_map", {"a": "index"}, "cannot rename 'index'"),
        ("feature_map", {"timestamp": "time"}, "cannot rename 'timestamp'"),
        ("feature_map", {"a": "c", "b": ("c", ["x"])}, "several features to 'c'"),
    ],
)
def test_a_bad_argument_is_refused_at_once(argument: str, value: Any, text: str) -> None:
    """The error names the argument, and the source where it has a part in it."""
    with pytest.raises(SelectionError) as error:
        Source("org/a", **{argument: value})

    assert text in str(error.value)
    assert argument in str(error.value)
