# SPDX-License-Identifier: Apache-2.0
"""Statistics of groups: equal to those of all rows together, and 0 with deviation 1 elsewhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble import (
    SchemaOptions,
    SourceFeatures,
    affine,
    cached_stats,
    derive_schema,
    exact_stats,
    pool_stats,
)
from robostream.errors import MetadataError, SelectionError
from robostream.meta import DEFAULT_FEATURES, QUANTILES, column_stats

MOMENTS = ("mean", "std", "min", "max")
TOP = "observation.images.top"


def source(number: int, features: dict[str, Any]) -> SourceFeatures:
    return SourceFeatures(f"org/{number}", features | DEFAULT_FEATURES, 10, {})


def vector(names: list[str]) -> dict[str, Any]:
    return {"dtype": "float32", "shape": (len(names),), "names": names}


def default_stats(frames: int) -> dict[str, Any]:
    return {key: column_stats(np.arange(frames)) for key in DEFAULT_FEATURES}


@given(data=st.data())
def test_groups_have_the_statistics_of_all_their_rows(data: st.DataObject) -> None:
    """A dimension has those of the datasets that have it; if none has, it is 0, deviation 1."""
    names = ["a", "b", "c", "d"]
    owned = data.draw(
        st.lists(st.lists(st.sampled_from(names), min_size=1, unique=True), min_size=1, max_size=3)
    )
    seed = data.draw(st.integers(0, 99))
    random = np.random.default_rng(seed)
    rows = [random.normal(3, 2, (int(random.integers(1, 20)), len(own))) for own in owned]
    features = [source(n, {"x": vector(own)}) for n, own in enumerate(owned)]
    schema, maps = derive_schema(features, SchemaOptions(schema={"features": {"x": names}}))
    members = [
        (f"org/{n}", maps[n], {"x": column_stats(rows[n])} | default_stats(len(rows[n])))
        for n in range(len(owned))
    ]
    pooled = pool_stats(schema, members)
    exact = exact_stats(schema, maps, lambda n, _: [rows[n][:1], rows[n][1:]])
    total = sum(map(len, rows))

    assert {*pooled} == {"x", *DEFAULT_FEATURES}
    assert pooled["x"]["count"] == exact["x"]["count"] == [total]
    for place, name in enumerate(names):
        parts = [r[:, own.index(name)] for r, own in zip(rows, owned, strict=True) if name in own]
        if parts:
            expected = {k: v[0] for k, v in column_stats(np.concatenate(parts)).items()}
        else:
            expected = dict.fromkeys([*MOMENTS, *QUANTILES], 0.0) | {"std": 1.0}
        for statistic in (*MOMENTS, *QUANTILES):
            assert exact["x"][statistic][place] == pytest.approx(expected[statistic])
        for statistic in MOMENTS:
            assert pooled["x"][statistic][place] == pytest.approx(expected[statistic])
        assert pooled["x"]["q01"][place] <= expected["q01"]
        assert pooled["x"]["q99"][place] >= expected["q99"]


def test_cameras_are_pooled_over_the_datasets_that_have_them() -> None:
    """Shapes are those of LeRobot; a camera that no dataset of a group has is 0, deviation 1."""
    camera = {"dtype": "video", "shape": (4, 4, 3), "names": ["height", "width", "channels"]}
    images = [np.random.default_rng(n).random((n + 2, 3)) for n in range(2)]
    features = [source(0, {TOP: camera}), source(1, {TOP: camera}), source(2, {})]
    schema, maps = derive_schema(features, SchemaOptions())
    members = [
        (
            f"org/{n}",
            maps[n],
            default_stats(5) | ({TOP: _per_channel(column_stats(images[n]))} if n < 2 else {}),
        )
        for n in range(3)
    ]
    expected = column_stats(np.concatenate(images))
    pooled, without = pool_stats(schema, members), pool_stats(schema, members[2:])

    for name in MOMENTS:
        assert pooled[TOP][name].shape == (3, 1, 1)
        assert pooled[TOP][name].ravel() == pytest.approx(expected[name])
    assert (pooled[TOP]["count"], without[TOP]["count"]) == ([5], [0])
    assert without[TOP]["std"].ravel().tolist() == [1, 1, 1]
    assert without[TOP]["mean"].ravel().tolist() == [0, 0, 0]


def _per_channel(stats: dict[str, Any]) -> dict[str, Any]:
    return {k: v if k == "count" else v.reshape(-1, 1, 1) for k, v in stats.items()}


def test_missing_statistics_leave_the_feature_out(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the feature and the dataset; statistics of a wrong size are an error."""
    schema, maps = derive_schema([source(0, {"x": vector(["a", "b"])})], SchemaOptions())
    wrong = {"x": column_stats(np.ones((4, 3)))} | default_stats(4)
    with caplog.at_level(logging.WARNING):
        found = pool_stats(schema, [("org/0", maps[0], default_stats(4))])
    with pytest.raises(MetadataError, match=r"org/0, meta/stats.json: the statistics of 'x'"):
        pool_stats(schema, [("org/0", maps[0], wrong)])

    assert {*found} == {*DEFAULT_FEATURES}
    assert "x: no statistics in org/0" in caplog.text


def test_statistics_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another selection is another file; a damaged file is made anew."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path))
    calls: list[str] = []

    def compute(name: str) -> Any:
        calls.append(name)
        return {"arm": {"x": column_stats(np.arange(6.0).reshape(3, 2))}}

    first = cached_stats({"selection": [1, 2]}, lambda: compute("first"))
    again = cached_stats({"selection": [1, 2]}, lambda: compute("again"))
    cached_stats({"selection": [1]}, lambda: compute("other"))
    for path in (tmp_path / "stats").iterdir():
        path.write_text("{")
    cached_stats({"selection": [1]}, lambda: compute("damaged"))

    assert calls == ["first", "other", "damaged"]
    for name, value in first["arm"]["x"].items():
        assert again["arm"]["x"][name].tolist() == value.tolist()


@pytest.mark.parametrize(
    ("mode", "low", "high"),
    [
        ("mean_std", (4.0 - 2.0) / 0.5, (5.0 - 2.0) / 0.5),
        ("min_max", 0.6, 1.0),
        ("quantiles", 1.0, 1.5),
    ],
)
def test_modes_map_values_as_they_say(mode: str, low: float, high: float) -> None:
    """Deviations from the mean, or bounds at -1 and 1; a constant dimension becomes 0."""
    one = {"mean": 2.0, "std": 0.5, "min": 0.0, "max": 5.0, "q01": 0.0, "q99": 4.0}
    constant = {"mean": 7.0, "std": 1e-9, "min": 7.0, "max": 7.0, "q01": 7.0, "q99": 7.0}
    entry = {name: np.array([one[name], constant[name]]) for name in one}
    scale, shift = affine(entry, mode, "x")

    assert (np.array([4.0, 7.0]) * scale + shift).tolist() == pytest.approx([low, 0.0])
    assert (np.array([5.0, 7.5]) * scale + shift).tolist() == pytest.approx([high, 0.5])


def test_unknown_modes_and_missing_quantiles_are_refused() -> None:
    """The error names the feature and what it needs."""
    entry = {"mean": np.zeros(1), "std": np.ones(1)}
    with pytest.raises(SelectionError, match=r"mode of 'x' must be \"mean_std\""):
        affine(entry, "none", "x")
    with pytest.raises(SelectionError, match=r"needs the statistics q01 and q99"):
        affine(entry, "quantiles", "x")
