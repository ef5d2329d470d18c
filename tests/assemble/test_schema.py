# SPDX-License-Identifier: Apache-2.0
"""The schema of a mixture: tables of what fits together, what does not, and what would help."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble import (
    Schema,
    SchemaOptions,
    SourceFeatures,
    SourceMap,
    derive_schema,
)
from robostream.assemble.derive import alignment_names
from robostream.assemble.schema import ColumnMap
from robostream.errors import SelectionError
from robostream.meta import DEFAULT_FEATURES, LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES, NAMES

TOP, SIDE = "observation.images.top", "observation.images.side"


def vector(names: Any = None, size: int | None = None, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": (size or len(names),), "names": names}


def camera(height: int, width: int, **info: Any) -> dict[str, Any]:
    names = ["height", "width", "channels"]
    channels = 1 if info else 3
    return {"dtype": "video", "shape": (height, width, channels), "names": names, "info": info}


def source(name: str, features: dict[str, Any], **other: Any) -> SourceFeatures:
    whole = features | DEFAULT_FEATURES
    return SourceFeatures(name, whole, other.pop("fps", 10), other.pop("feature_map", {}))


def derive(*sources: SourceFeatures, **options: Any) -> tuple[Schema, list[SourceMap]]:
    return derive_schema(sources, SchemaOptions(**options))


def column(source_map: SourceMap, key: str) -> ColumnMap | None:
    return next((c for c in source_map.columns if c.common == key), None)


def part(parts: Any, key: str) -> Any:
    return next(p for p in parts if p.key == key)


@pytest.mark.parametrize(
    ("names", "size", "flat"),
    [
        (["a", "b"], 2, ("a", "b")),
        ({"motors": ["a", "b"]}, 2, ("a", "b")),
        ({"left": ["a"], "right": ["b"]}, 2, ("a", "b")),
        ({"a": 1, "b": 0}, 2, ("b", "a")),
        (["motors"], 6, None),
        (None, 1, None),
        ([None, "a"], 2, None),
        (["one"], 1, ("one",)),
    ],
)
def test_names_are_read_in_all_their_forms(names: Any, size: int, flat: Any) -> None:
    """A list, lists in an object, numbers in an object; names that do not fit are none."""
    assert alignment_names(vector(names, size)) == flat


@pytest.mark.parametrize(
    ("first", "second", "common", "dims"),
    [
        (vector(["a", "b"]), vector(["a", "b"]), ("a", "b"), (None, None)),
        (vector(["a", "b"]), vector(["b", "a"]), ("a", "b"), (None, (1, 0))),
        (vector(["a", "c"]), vector(["a", "b", "c"]), ("a", "b", "c"), ((0, 2), None)),
        (vector(["a", "b", "c"]), vector(["c"]), ("a", "b", "c"), (None, (2,))),
        (vector({"m": ["a", "b"]}, 2), vector({"a": 1, "b": 0}), ("a", "b"), (None, (1, 0))),
        (vector(None, 3), vector(None, 3), None, (None, None)),
        (vector(["a", "a"]), vector(["a", "a"]), ("a", "a"), (None, None)),
        (vector(["gripper"]), vector(None, 1), ("gripper",), (None, None)),
    ],
)
def test_vectors_are_aligned_by_name(first: Any, second: Any, common: Any, dims: Any) -> None:
    """Equal names are permuted, a subset is padded, features declared alike stay as they are."""
    schema, maps = derive(source("org/a", {"action": first}), source("org/b", {"action": second}))
    action = part(schema.vectors, "action")

    assert action.names == common
    assert tuple(column(m, "action").dims for m in maps) == dims  # type: ignore[union-attr]
    assert action.has_mask == (first["shape"] != second["shape"])


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (
            vector(["a", "b"]),
            vector(["b", "c"]),
            "'org/b' has other names: c, so it cannot be aligned with that of 'org/a'",
        ),
        (vector(["a", "b"]), vector(None, 2), "'org/b' does not name its 2 dimensions"),
        (vector(None, 2), vector(["a", "b"]), "'org/a' does not name its 2 dimensions"),
        (vector(["a", "a"]), vector(["a"]), "'org/a' has several dimensions named 'a'"),
        (vector(["a", "b"]), vector(["a", "a"]), "'org/b' has several dimensions named 'a'"),
        (vector(None, 2), vector(None, 3), "'org/b' does not name its 3 dimensions"),
        (vector(["left"]), vector(["right"]), "has other names: right"),
        (vector(["a", "b"]), vector(["a", "b"], dtype="int64"), "is of kind float32"),
        (vector(None, 1, "bool"), vector(None, 1, "int64"), "is of kind bool"),
        (vector(None, 1), camera(8, 8), "of kind camera"),
        (camera(8, 8), camera(8, 8, is_depth_map=True), "of kind depth camera"),
        ({"dtype": "string", "shape": (1,)}, vector(None, 1), "is of kind string"),
        (
            {"dtype": "float32", "shape": (2, 3), "names": None},
            {"dtype": "float32", "shape": (3, 2), "names": None},
            "only vectors can be aligned",
        ),
        (
            {"dtype": "float32", "shape": (2,), "names": None},
            {"dtype": "float32", "shape": (2, 1), "names": None},
            "only vectors can be aligned",
        ),
    ],
)
def test_contradictions_name_both_datasets_and_the_cure(first: Any, second: Any, says: str) -> None:
    """Nothing is mixed by position: the error says which feature_map would resolve it."""
    with pytest.raises(SelectionError) as error:
        derive(source("org/a", {"x": first}), source("org/b", {"x": second}))

    text = str(error.value)
    assert says in text
    assert "'org/a'" in text
    assert "'org/b'" in text
    assert "feature_map={'x': " in text


def test_a_feature_map_resolves_a_contradiction() -> None:
    """New names or another key are the cures that errors offer; both work."""
    first, second = {"action": vector(["a", "b"])}, {"action": vector(None, 2)}
    named = source("org/b", second, feature_map={"action": ("action", ["b", "a"])})
    apart = source("org/b", second, feature_map={"action": "action_b"})
    schema, maps = derive(source("org/a", first), named)
    wide, [one, two] = derive(source("org/a", first), apart)

    assert part(schema.vectors, "action").names == ("a", "b")
    assert column(maps[1], "action") == ColumnMap("action", "action", (1, 0))
    assert [v.key for v in wide.vectors if v.has_mask] == ["action", "action_b"]
    assert wide.masks == ["action_dim_is_pad", "action_b_dim_is_pad"]
    assert column(one, "action_b") is None
    assert column(two, "action_b") == ColumnMap("action", "action_b", None)


def test_keys_may_change_places() -> None:
    """A feature map renames all keys at once."""
    both = {"a": vector(["x"]), "b": vector(["y"])}
    _, [one] = derive(source("org/a", both, feature_map={"a": "b", "b": "a"}))

    assert column(one, "a") == ColumnMap("b", "a", None)
    assert column(one, "b") == ColumnMap("a", "b", None)


@pytest.mark.parametrize(
    ("feature_map", "says"),
    [
        ({"none": "x"}, "names 'none', but the selected features of the dataset are action"),
        ({"action": "state"}, "has both 'action' and 'state' as 'state'"),
        ({"action": ("action", ["a"])}, "gives 1 names for 'action'; want 2 names"),
        ({TOP: ("top", ["a"])}, "want a key alone (camera"),
    ],
)
def test_a_feature_map_that_does_not_fit_is_refused(feature_map: Any, says: str) -> None:
    """The error names the source."""
    features = {"action": vector(["a", "b"]), "state": vector(["c"]), TOP: camera(8, 8)}
    with pytest.raises(SelectionError) as error:
        derive(source("org/a", features, feature_map=feature_map))

    assert says in str(error.value)
    assert "source 'org/a'" in str(error.value)


def test_cameras_are_the_union_in_the_smallest_size() -> None:
    """A camera that a source lacks has no own key; only frames of another size are scaled."""
    big = source("org/a", {TOP: camera(480, 640), SIDE: camera(100, 100)})
    small = source("org/b", {TOP: camera(224, 224)})
    schema, [of_big, of_small] = derive(big, small)

    assert [(c.key, c.shape, c.has_mask) for c in schema.cameras] == [
        (TOP, (3, 224, 224), False),
        (SIDE, (3, 100, 100), True),
    ]
    assert schema.masks == [f"{SIDE}_is_missing"]
    assert (of_big.cameras, of_small.cameras) == ((TOP, SIDE), (TOP, None))
    assert (of_big.sizes, of_small.sizes) == ({TOP: (224, 224)}, {})


def test_an_explicit_schema_chooses_cameras_sizes_and_names() -> None:
    """Unlisted cameras are left out, listed names are the union, None leaves a feature out."""
    first = source(
        "org/a",
        {TOP: camera(8, 8), SIDE: camera(6, 6), "action": vector(["a", "b"]), "r": vector(["r"])},
    )
    second = source("org/b", {TOP: camera(4, 4), "action": vector(["c", "b"])})
    schema, [one, two] = derive(
        first,
        second,
        schema={"cameras": {TOP: [16, 12]}, "features": {"action": ["a", "b", "c"], "r": None}},
    )

    assert [(c.key, c.shape) for c in schema.cameras] == [(TOP, (3, 16, 12))]
    assert {v.key for v in schema.vectors} == {"action", *DEFAULT_FEATURES}
    assert (column(one, "action"), column(two, "action")) == (
        ColumnMap("action", "action", (0, 1)),
        ColumnMap("action", "action", (2, 1)),
    )
    assert (one.sizes, two.sizes) == ({TOP: (16, 12)}, {TOP: (16, 12)})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("other", 'schema must be "auto"'),
        ({"camera": {}}, "got {'camera': {}}"),
        ({"cameras": {"observation.images.tpo": None}}, f"Did you mean '{TOP}'"),
        ({"cameras": {"action": None}}, "schema['cameras'] lists 'action'"),
        ({"cameras": {TOP: [4]}}, f"schema['cameras']['{TOP}'] must be (height, width)"),
        ({"cameras": [TOP]}, "schema['cameras'] must be values by common key"),
        ({"features": {TOP: ["a"]}}, "lists 'observation.images.top'"),
        ({"features": {"action": ["a", "a"]}}, "must be different names"),
        ({"features": {"action": ["a"]}}, "'org/a' has other names: b"),
        ({"features": {"free": ["a", "b"]}}, "'org/a' does not name its 2 dimensions"),
        ({"features": {"index": None}}, "every sample has 'index'"),
    ],
)
def test_an_explicit_schema_that_does_not_fit_is_refused(schema: Any, says: str) -> None:
    """The error says what no source has, or which source does not fit."""
    features = {TOP: camera(8, 8), "action": vector(["a", "b"]), "free": vector(None, 2)}
    with pytest.raises(SelectionError) as error:
        derive(source("org/a", features), schema=schema)

    assert says in str(error.value)


def test_channels_must_agree() -> None:
    """A grey camera and one in colour do not share a key."""
    grey = camera(8, 8) | {"shape": (8, 8, 1)}
    with pytest.raises(SelectionError, match=r"3 channels in 'org/a' and 1 in 'org/b'"):
        derive(source("org/a", {TOP: camera(8, 8)}), source("org/b", {TOP: grey}))


def test_texts_are_those_that_all_sources_have(caplog: pytest.LogCaptureFixture) -> None:
    """What some source lacks is left out, and the log says so."""
    text = {"dtype": "string", "shape": (1,), "names": None}
    with caplog.at_level(logging.INFO):
        schema, maps = derive(
            source("org/a", {"note": text, "hint": text}),
            source("org/b", {"remark": text}, feature_map={"remark": "note"}),
        )

    assert schema.texts == ("note",)
    assert [m.texts for m in maps] == [("note",), ("remark",)]
    assert "left out, because some sources lack them: hint" in caplog.text
    assert schema.describe() in caplog.text


def test_windows_have_one_length_and_each_source_its_own_frames() -> None:
    """Seconds become frames at each source's rate; steps are steps of any rate."""
    names = {"action": vector(["a"]), TOP: camera(8, 8)}
    fast = source("org/a", names, fps=50)
    slow = source("org/b", {"act": vector(["a"])}, fps=10, feature_map={"act": "action"})
    schema, [one, two] = derive(
        fast, slow, delta_timestamps={"action": [-0.1, 0.0, 0.2]}, delta_indices={TOP: [-1, 0]}
    )

    assert schema.windows == {"action": 3, TOP: 2}
    assert {k: v.tolist() for k, v in one.windows.items()} == {TOP: [-1, 0], "action": [-5, 0, 10]}
    assert {k: v.tolist() for k, v in two.windows.items()} == {"act": [-1, 0, 2]}


def test_another_rate_needs_resampling_which_takes_the_nearest_frame() -> None:
    """The error names the dataset and the argument."""
    sources = [source(f"org/{fps}", {"action": vector(["a"])}, fps=fps) for fps in (50, 15)]
    seconds = {"action": [0.0, 0.02, 0.1]}
    with pytest.raises(SelectionError) as error:
        derive(*sources, delta_timestamps=seconds)
    _, [fast, slow] = derive(*sources, delta_timestamps=seconds, resample="nearest")

    assert "0.02 s, which is no multiple of 1/fps = 0.0666667 s of 'org/15'" in str(error.value)
    assert 'resample="nearest"' in str(error.value)
    assert fast.windows["action"].tolist() == [0, 1, 5]
    assert slow.windows["action"].tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"resample": "linear"}, 'resample must be None or "nearest"'),
        ({"tolerance_s": 0}, "tolerance_s"),
        ({"delta_indices": {"action": [0.5]}}, r"delta_indices['action'] as a list of whole"),
        ({"delta_indices": {"action": []}}, "is empty"),
        ({"delta_indices": {"nothing": [0]}}, "'nothing', which no source has"),
        ({"delta_indices": {"note": [0]}}, "texts have no windows"),
        ({"delta_timestamps": {"action": [float("nan")]}, "resample": "nearest"}, "asks for nan s"),
        (
            {"delta_timestamps": {"action": [0]}, "delta_indices": {"action": [0]}},
            "both have a window of 'action'",
        ),
    ],
)
def test_windows_that_do_not_fit_are_refused(options: Any, says: str) -> None:
    """The error names the argument."""
    text = {"dtype": "string", "shape": (1,), "names": None}
    with pytest.raises(SelectionError) as error:
        derive(source("org/a", {"action": vector(["a"]), "note": text}), **options)

    assert says in str(error.value)


def test_a_feature_named_as_a_mask_is_refused() -> None:
    """One of the two would overwrite the other."""
    one = source("org/a", {"action": vector(["a"]), "action_dim_is_pad": vector(None, 1)})
    two = source("org/b", {"action": vector(["a", "b"])})
    with pytest.raises(SelectionError, match=r"a feature named 'action_dim_is_pad'"):
        derive(one, two)


def test_the_description_has_a_line_for_each_feature() -> None:
    """It shows sizes, dtypes, windows, and what some sources lack."""
    schema, _ = derive(
        source("org/a", {TOP: camera(4, 6), "action": vector(["a", "b"])}),
        source("org/b", {"action": vector(["b"])}),
        delta_indices={"action": [0, 1]},
    )
    lines = [line.split() for line in schema.describe().splitlines()]

    assert lines[:3] == [
        ["feature", "shape", "dtype", "steps"],
        [TOP, "3", "x", "4", "x", "6", "image", "missing", "in", "some", "sources"],
        ["action", "2", "float32", "2", "padded", "in", "some", "sources"],
    ]
    assert len(lines) == 3 + len(DEFAULT_FEATURES)


def test_one_dataset_is_its_own_schema() -> None:
    """Each fixture alone keeps its keys, shapes and names, and nothing is padded or scaled."""
    for name in NAMES:
        meta = LeRobotDatasetMetadata("some/name", root=FIXTURES / name)
        schema, [only] = derive_schema(
            [SourceFeatures(name, meta.features, meta.fps, {})], SchemaOptions()
        )
        keys = {*schema.features, *schema.texts}

        assert keys == {*meta.features}
        assert (schema.masks, only.sizes) == ([], {})
        assert all(c.own == c.common and c.dims is None for c in only.columns)
        assert only.cameras == tuple(meta.camera_keys)


@given(data=st.data(), size=st.integers(2, 9), rows=st.integers(1, 4))
def test_values_find_their_names_again(data: st.DataObject, size: int, rows: int) -> None:
    """Any source's values land under their own names; every other dimension stays zero."""
    names = [f"joint_{n}" for n in range(size)]
    order = data.draw(st.permutations(names))
    some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    sources = [source("org/all", {"x": vector(order)}), source("org/some", {"x": vector(some)})]
    if data.draw(st.booleans()):
        sources.reverse()
    schema, maps = derive(*sources)
    common = part(schema.vectors, "x")

    assert sorted(common.names) == names
    for described, source_map in zip(sources, maps, strict=True):
        own = described.features["x"]["names"]
        values = np.arange(1, rows * len(own) + 1, dtype=np.float32).reshape(rows, len(own))
        out = np.zeros((rows, size), np.float32)
        if len(own) == 1:
            values = values[:, 0]  # a plain number has no axis
        found = column(source_map, "x")
        assert found is not None
        found.write(values, out)
        by_name = dict(zip(own, values.reshape(rows, -1).T.tolist(), strict=True))

        for place, name in enumerate(common.names):
            assert out[:, place].tolist() == by_name.get(name, [0.0] * rows)
