# SPDX-License-Identifier: Apache-2.0
"""Write tests/fixtures with LeRobot, and the values that LeRobot reads from them.

Needs a Python 3.12 with `pip install "lerobot[dataset]==0.6.1"`:

    python scripts/make_fixtures.py tests/fixtures

LeRobot's writer makes each folder. `expected/` holds what LeRobot's map-style reader returns for
some items: `spec.json` (items, windows, texts, counts) and `items.npz` with every
tensor under `<plain|window>|<item>|<key>`. Cameras are read with `return_uint8=True`.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.video import DepthEncoderConfig, RGBEncoderConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset

HEIGHT, WIDTH = 48, 64
TASKS = ("stack the cups", "open the drawer")


@dataclass
class Recipe:
    """One fixture."""

    name: str
    fps: int
    lengths: list[int]
    cameras: list[str]
    use_videos: bool = True
    encoder: RGBEncoderConfig | None = None
    video_mb: float | None = None
    data_mb: float | None = None
    depth: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


RECIPES = [
    Recipe(
        "av1_multifile", 20, [17, 9, 1, 14, 21], ["top", "wrist"], video_mb=0.006, data_mb=0.004
    ),
    Recipe(
        "h264_bframes", 10, [23, 31], ["top"], video_mb=0.004,
        encoder=RGBEncoderConfig(vcodec="h264", g=12, crf=23, extra_options={"bf": 3}),
    ),
    Recipe(
        "h264_long_gop", 30, [40, 35, 50], ["front", "wrist"],
        encoder=RGBEncoderConfig(vcodec="h264", g=250, crf=23, extra_options={"bf": 2}),
    ),
    Recipe("images", 15, [9, 7, 11], ["top"], use_videos=False),
    Recipe(
        "depth", 10, [12, 8], ["top"], depth=True,
        extra={
            "observation.grid": {"dtype": "float64", "shape": (2, 3), "names": None},
            "note": {"dtype": "string", "shape": (1,), "names": None},
            "count": {"dtype": "int32", "shape": (1,), "names": None},
        },
    ),
]  # fmt: skip


def features_of(recipe: Recipe) -> dict[str, Any]:
    dtype = "video" if recipe.use_videos else "image"
    names = ["height", "width", "channels"]
    features: dict[str, Any] = {
        f"observation.images.{camera}": {
            "dtype": dtype,
            "shape": (HEIGHT, WIDTH, 3),
            "names": names,
        }
        for camera in recipe.cameras
    }
    if recipe.depth:
        features["observation.depth.top"] = {
            "dtype": dtype,
            "shape": (HEIGHT, WIDTH, 1),
            "names": names,
            "info": {"is_depth_map": True},
        }
    return features | {
        "observation.state": {
            "dtype": "float32",
            "shape": (6,),
            "names": [f"j{i}" for i in range(6)],
        },
        "action": {"dtype": "float32", "shape": (7,), "names": None},
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
        **recipe.extra,
    }


def make_image(rng: np.random.Generator, camera: int, episode: int, frame: int) -> np.ndarray:
    """Return a moving gradient, a block that moves differently, and a little noise."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    image = np.stack(
        [(x * 3 + frame * 5) % 256, (y * 4 + episode * 40) % 256, (x + y + camera * 60) % 256], -1
    )
    image = np.clip(image * 0.6 + 40 + rng.normal(0, 2, image.shape), 0, 255).astype(np.uint8)
    left = (frame * 2 + episode * 7) % (WIDTH - 12)
    image[10:22, left : left + 12] = (220, 60 + camera * 50, 40)
    return image


def frame_of(recipe: Recipe, rng: np.random.Generator, episode: int, frame: int) -> dict[str, Any]:
    phase = episode + 0.13 * frame
    length = recipe.lengths[episode]
    values: dict[str, Any] = {
        f"observation.images.{camera}": make_image(rng, i, episode, frame)
        for i, camera in enumerate(recipe.cameras)
    }
    if recipe.depth:
        y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
        values["observation.depth.top"] = (500 + 8 * x + 5 * y + 20 * frame)[..., None].astype(
            np.uint16
        )
        values["observation.grid"] = np.arange(6, dtype=np.float64).reshape(2, 3) + phase
        values["note"] = f"frame {frame} of {episode}"
        values["count"] = np.array([frame * 3], np.int32)
    return values | {
        "observation.state": np.sin(phase + np.arange(6)).astype(np.float32),
        "action": np.cos(2 * phase + np.arange(7)).astype(np.float32),
        "next.reward": np.array([frame / length], np.float32),
        "next.done": np.array([frame == length - 1]),
        "task": TASKS[episode % 2],
    }


def write(recipe: Recipe, root: Path) -> None:
    rng = np.random.default_rng(7)
    dataset = LeRobotDataset.create(
        f"fixture/{recipe.name}",
        recipe.fps,
        features_of(recipe),
        root=root,
        robot_type="arm",
        use_videos=recipe.use_videos,
        rgb_encoder=recipe.encoder,
        depth_encoder=DepthEncoderConfig() if recipe.depth else None,
        video_backend="pyav",
        video_files_size_in_mb=recipe.video_mb,
        data_files_size_in_mb=recipe.data_mb,
    )
    for episode, length in enumerate(recipe.lengths):
        for frame in range(length):
            dataset.add_frame(frame_of(recipe, rng, episode, frame))
        dataset.save_episode()
    dataset.finalize()


def expected(recipe: Recipe, root: Path) -> None:
    step = 1 / recipe.fps
    windows = {
        "action": [i * step for i in range(5)],
        "observation.state": [-2 * step, 0.0],
        f"observation.images.{recipe.cameras[0]}": [-3 * step, 0.0, 4 * step],
    }
    arrays: dict[str, np.ndarray] = {}
    texts: dict[str, str] = {}
    items: list[int] = []
    for kind, deltas in (("plain", None), ("window", windows)):
        dataset = LeRobotDataset(
            f"fixture/{recipe.name}",
            root=root,
            delta_timestamps=deltas,
            return_uint8=True,
            video_backend="pyav",
        )
        ends = np.cumsum(recipe.lengths)
        edges = {int(i) for end in ends for i in (end - 1, end, end - 2)} | {0, 1, 5}
        items = sorted(i for i in edges if i < len(dataset))
        for item in items:
            for key, value in dataset[item].items():
                if isinstance(value, torch.Tensor):
                    arrays[f"{kind}|{item}|{key}"] = value.numpy()
                else:
                    texts[f"{kind}|{item}|{key}"] = value
    (root / "expected").mkdir()
    spec = {
        "indices": items,
        "delta_timestamps": windows,
        "strings": texts,
        "num_frames": sum(recipe.lengths),
        "num_episodes": len(recipe.lengths),
        "fps": recipe.fps,
    }
    (root / "expected" / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    np.savez_compressed(root / "expected" / "items.npz", **arrays)


def main(destination: Path) -> None:
    for recipe in RECIPES:
        root = destination / recipe.name
        shutil.rmtree(root, ignore_errors=True)
        write(recipe, root)
        expected(recipe, root)
        size = sum(p.stat().st_size for p in root.rglob("*") if p.is_file())
        print(f"{recipe.name}: {sum(recipe.lengths)} frames, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
