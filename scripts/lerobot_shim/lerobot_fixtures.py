# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: the fixture of LeRobot's streaming tests, made with robostream's writer.

LeRobot's own fixtures need LeRobot's writer, which is not installed. Like those, these datasets
have two cameras, episodes of random lengths, and images in Parquet whose height and width are
swapped in info.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from robostream import LeRobotDataset

FPS = 30
HEIGHT, WIDTH = 64, 96
JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
CAMERAS = ("laptop", "phone")


@pytest.fixture(scope="session")
def lerobot_dataset_factory() -> Callable[..., LeRobotDataset]:
    """A function that makes a dataset and opens it."""
    return make_dataset


def make_dataset(
    root: Path,
    repo_id: str,
    *,
    total_episodes: int,
    total_frames: int,
    use_videos: bool = True,
    data_files_size_in_mb: float = 100,
    chunks_size: int = 1000,
    **options: Any,
) -> LeRobotDataset:
    """Record a dataset and return it, opened with the options."""
    numbers = {"dtype": "float32", "shape": (len(JOINTS),), "names": JOINTS}
    camera = {
        "dtype": "video" if use_videos else "image",
        "shape": (HEIGHT, WIDTH, 3),
        "names": ["height", "width", "channels"],
    }
    dataset = LeRobotDataset.create(
        repo_id,
        FPS,
        {"action": numbers, "state": numbers} | dict.fromkeys(CAMERAS, camera),
        root=root,
        use_videos=use_videos,
        chunks_size=chunks_size,
        data_files_size_in_mb=data_files_size_in_mb,
    )
    rng = np.random.default_rng(0)
    lengths = rng.multinomial(total_frames, [1 / total_episodes] * total_episodes)
    index = 0
    for episode, length in enumerate(lengths.tolist()):
        for _ in range(length):
            values = {key: rng.random(len(JOINTS), np.float32) for key in ("action", "state")}
            images = {key: _make_image(f"{key}-{index}") for key in CAMERAS}
            dataset.add_frame(values | images | {"task": f"Perform action {episode % 3}."})
            index += 1
        dataset.save_episode()
    dataset.finalize()
    if not use_videos:
        _swap_declared_sizes(root)
    return LeRobotDataset(repo_id, root=root, **options)


def _make_image(text: str) -> np.ndarray:
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    ImageDraw.Draw(image).text((8, HEIGHT // 2 - 6), text, "black")
    return np.asarray(image)


def _swap_declared_sizes(root: Path) -> None:
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    for key in CAMERAS:
        info["features"][key]["shape"] = [WIDTH, HEIGHT, 3]
    path.write_text(json.dumps(info))
