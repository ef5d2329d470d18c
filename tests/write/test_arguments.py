# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of a recording raise an error before anything is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robostream import DepthEncoderConfig, LeRobotDataset, VideoEncoderConfig
from robostream.errors import MetadataError, SelectionError
from tests.write.recording import FEATURES, FPS, QUICK

STATE = {"state": {"dtype": "float32", "shape": (2,)}}


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("repo_id", None, "a text"),
        ("root", 3, "a path"),
        ("fps", "30", "a number above 0"),
        ("fps", 0, "a number above 0"),
        ("fps", True, "a number above 0"),
        ("robot_type", 3, "a text"),
        ("use_videos", "no", "True or False"),
        ("chunks_size", 1.5, ">= 1, a whole number"),
        ("data_files_size_in_mb", "100", "a number above 0"),
        ("video_files_size_in_mb", -1, "a number above 0"),
        ("encoder_queue_maxsize", "30", ">= 0, a whole number"),
        ("rgb_encoder", "h264", "a VideoEncoderConfig"),
        ("depth_encoder", QUICK, "a DepthEncoderConfig"),
    ],
)
def test_create_rejects(name: str, value: Any, wanted: str, tmp_path: Path) -> None:
    """The folder is not made."""
    given = {"repo_id": "me/a", "fps": FPS, "features": STATE, "root": tmp_path / "a"}
    with pytest.raises(SelectionError, match=f"{name}.* must be {re.escape(wanted)}.* got "):
        LeRobotDataset.create(**given | {name: value})

    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({1: STATE["state"]}, "the name of a feature must be a text; got 1"),
        ({"state": 3}, "'state' must be an object with 'dtype' and 'shape'"),
        ({"state": {"dtype": "float32", "shape": (True,)}}, "want a list of whole numbers above 0"),
    ],
)
def test_invalid_features_raise(features: Any, says: str, tmp_path: Path) -> None:
    """Each by its name."""
    with pytest.raises(MetadataError, match=says):
        LeRobotDataset.create("me/a", FPS, features, root=tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [("rgb_encoder", "h264", "a VideoEncoderConfig"), ("depth_encoder", 3, "a DepthEncoderConfig")],
)
def test_resume_rejects(name: str, value: Any, wanted: str, tmp_path: Path) -> None:
    """And leave the dataset free for the next attempt."""
    LeRobotDataset.create("me/a", FPS, FEATURES, root=tmp_path, rgb_encoder=QUICK).finalize()
    with pytest.raises(SelectionError, match=f"{name}.* must be {wanted}; got "):
        LeRobotDataset.resume("me/a", tmp_path, **{name: value})

    LeRobotDataset.resume("me/a", tmp_path).finalize()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("codec", 264, "a name"),
        ("codec", ["h264"], "a name"),
        ("pix_fmt", None, "a name"),
        ("g", "2", ">= 1, a whole number"),
        ("g", 0, ">= 1, a whole number"),
        ("crf", "30", "a number of 0 or more"),
        ("preset", 1.5, "a name or a whole number"),
        ("fast_decode", 0.5, ">= 0, a whole number"),
        ("threads", "2", ">= 0, a whole number"),
        ("extra_options", ["bf"], "values by name"),
    ],
)
def test_encoder_options_reject(name: str, value: Any, wanted: str) -> None:
    """FFmpeg would take some of them for something else."""
    with pytest.raises(SelectionError, match=f"{name} must be {re.escape(wanted)}.* got "):
        VideoEncoderConfig(**{name: value})


def test_a_depth_encoder_checks_the_type_of_its_parts() -> None:
    """A codec alone is no encoder."""
    with pytest.raises(SelectionError, match="video must be a VideoEncoderConfig; got 'hevc'"):
        DepthEncoderConfig("hevc")  # type: ignore[arg-type]


def test_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    """And written to info.json as plain numbers."""
    numpy: dict[str, Any] = {"chunks_size": np.int64(7), "data_files_size_in_mb": np.float32(2)}
    features = {"state": {"dtype": "float32", "shape": (np.int64(2),)}}
    fps: Any = np.int64(FPS)
    dataset = LeRobotDataset.create("me/a", fps, features, root=tmp_path, **numpy)
    dataset.finalize()
    info = json.loads((tmp_path / "meta/info.json").read_text())

    assert (info["fps"], info["chunks_size"], info["data_files_size_in_mb"]) == (FPS, 7, 2)
    assert info["features"]["state"]["shape"] == [2]
