# SPDX-License-Identifier: Apache-2.0
"""An info.json and a stats.json that would mislead, or stop the reader later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robostream.errors import MetadataError
from robostream.meta import DEFAULT_FEATURES, DatasetInfo, LeRobotDatasetMetadata
from robostream.meta.stats import parse_stats, rescale_depth
from tests.fixture_datasets import copy_of

COLOUR = {"dtype": "video", "shape": [4, 4, 3]}
DEPTH = {"is_depth_map": True}


def info_of(features: dict[str, Any], **fields: Any) -> DatasetInfo:
    given = {"codebase_version": "v3.0", "fps": 10, "features": DEFAULT_FEATURES | features}
    return DatasetInfo.from_dict(given | fields, "info.json")


def camera(info: Any, dtype: str = "video") -> dict[str, Any]:
    return {"top": {"dtype": dtype, "shape": [4, 4, 1], "info": info}}


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (camera("text"), "want an object as 'info', got 'text'"),
        ({"top": {**COLOUR, "video_info": [1]}}, "want an object as 'video_info'"),
        (camera({"is_depth_map": "false"}), "want true or false as 'is_depth_map', got 'false'"),
        (camera({"video.is_depth_map": [0]}), "want true or false as 'video.is_depth_map'"),
        (camera(DEPTH | {"depth_unit": "cm"}), "as 'depth_unit', got 'cm'"),
        (camera(DEPTH | {"depth_unit": ["m"]}, "image"), "as 'depth_unit', got"),
        (camera(DEPTH | {"video.depth_min": "0"}), "metres as depth_min_m, got '0'"),
        (camera(DEPTH | {"video.depth_min": 20}), "want depth_min_m < depth_max_m"),
        (camera(DEPTH | {"video.depth_max": True}), "metres as depth_max_m, got True"),
        (camera(DEPTH | {"video.depth_max": 1e300}), "metres as depth_max_m"),
        (camera(DEPTH | {"video.shift": float("nan")}), "metres as shift_m, got nan"),
        (camera(DEPTH | {"video.shift": None}), "metres as shift_m, got None"),
        (camera(DEPTH | {"video.use_log": None}), "true or false as use_log, got None"),
        (camera(DEPTH | {"video.use_log": []}), "true or false as use_log"),
        (
            {"index": {"dtype": "float16", "shape": [1]}},
            "'index' has dtype 'float16'; want 'int64'",
        ),
        ({"task_index": {"dtype": "bool", "shape": [1]}}, "'task_index' has dtype 'bool'"),
        ({"episode_index": {"dtype": "string", "shape": [1]}}, "'episode_index' has dtype"),
        ({"frame_index": {"dtype": "int8", "shape": [1]}}, "another integer of 32 bits or more"),
        ({"timestamp": {"dtype": "int64", "shape": [1]}}, "another float of 32 bits or more"),
    ],
)
def test_features_that_would_mislead(features: dict[str, Any], message: str) -> None:
    """What a feature says of itself is checked before anything is read by it."""
    with pytest.raises(MetadataError, match=message):
        info_of(features)


@pytest.mark.parametrize(
    "features",
    [
        camera(None),
        camera({"is_depth_map": None, "depth_unit": "cm"}),
        camera(DEPTH | {"depth_unit": "m", "video.depth_max": 20}),
        camera(DEPTH | {"video.use_log": None}, "image"),
        {
            "index": {"dtype": "int32", "shape": [1]},
            "timestamp": {"dtype": "float64", "shape": [1]},
        },
    ],
)
def test_features_that_do_not(features: dict[str, Any]) -> None:
    """Other widths, and what nothing is read by, are no hindrance."""
    assert info_of(features).features.keys() == (DEFAULT_FEATURES | features).keys()


def test_two_cameras_in_one_file() -> None:
    """A template that names one file for two cameras would give both the same frames."""
    path = "videos/{chunk_index}/{file_index}.mp4"

    assert info_of({"top": COLOUR}, video_path=path).video_keys == ["top"]
    with pytest.raises(MetadataError, match=r"the same file for the videos top, wrist; want the"):
        info_of({"top": COLOUR, "wrist": COLOUR}, video_path=path)


@pytest.mark.parametrize("file", ["info.json", "stats.json"])
@pytest.mark.parametrize("depth", [500, 100_000])
def test_brackets_without_end(tmp_path: Path, file: str, depth: int) -> None:
    """JSON that is nested deeper than Python can follow is told with the file."""
    root = copy_of("images", tmp_path)
    nested = "[" * depth + "]" * depth
    camera = f'{{"dtype": "float32", "shape": [1], "names": {nested}}}'
    fields = '"codebase_version": "v3.0", "fps": 1, "features"'
    text = (
        f'{{{fields}: {{"a": {camera}}}}}' if file == "info.json" else f'{{"a": {{"b": {nested}}}}}'
    )
    (root / "meta" / file).write_text(text)

    with pytest.raises(MetadataError, match=f"{file}: not "):
        LeRobotDatasetMetadata("some/name", root=root)


@pytest.mark.parametrize("value", ["null", '"far"', "[true]"])
def test_depth_statistics_that_are_no_numbers(tmp_path: Path, value: str) -> None:
    """They cannot be brought to another unit."""
    root = copy_of("depth", tmp_path)
    text = f'{{"observation.depth.top": {{"mean": {value}, "count": [1]}}}}'
    (root / "meta" / "stats.json").write_text(text)
    meta = LeRobotDatasetMetadata("some/name", root=root)

    with pytest.raises(MetadataError, match=r"stats\.json: want numbers as 'mean' of the depth"):
        meta.rescale_depth_stats("m")


def test_only_cameras_measure_distance() -> None:
    """What the `info` of another feature holds means nothing to its statistics."""
    features = info_of({"state": {"dtype": "float32", "shape": [1], "info": "text"}}).features
    stats = parse_stats('{"state": {"mean": [2.0]}}', "stats.json")

    assert rescale_depth(stats, features, "m") == stats
