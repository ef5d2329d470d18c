# SPDX-License-Identifier: Apache-2.0
"""All contestants on the same files in turn, several rounds; then what each delivers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robostream import config
from robostream.bench.choose import choose_named
from robostream.bench.datasets import bench_dataset
from robostream.bench.environment import machine
from robostream.bench.peers.contestants import CONTESTANTS, Contestant
from robostream.bench.results import Figures, medians
from robostream.bench.suite.shapes import SHAPES, Shape
from robostream.tools import SynthSpec

_BATCH_SIZE = 32
_TIMEOUT_S = 300
_FPS = 5
_SARM = [step * _FPS for step in range(8)]


@dataclass(frozen=True, slots=True)
class Event:
    """A dataset, how its cameras are stored, and the pictures of a sample."""

    shape: Shape
    stored: str
    mode: str
    offsets: list[int]


# As LeRobot records by default: a file of 200 MB takes many episodes.
_ONE_FILE = Shape(
    f"{SHAPES['av1'].title}, one file per camera",
    replace(SHAPES["av1"].spec, video_file_mb=config.VIDEO_FILES_SIZE_IN_MB),
)
EVENTS = {
    "av1-single": Event(SHAPES["av1"], "video", "single", [0]),
    "av1-one-file-single": Event(_ONE_FILE, "video", "single", [0]),
    "av1-sarm": Event(SHAPES["av1"], "video", "sarm", _SARM),
    "h264-single": Event(SHAPES["h264"], "video", "single", [0]),
    "images-single": Event(SHAPES["images"], "image", "single", [0]),
}
# A dataset so small that every picture is looked at. It has several files, as large datasets do.
_CHECKED = SynthSpec(
    episodes=12,
    min_frames=18,
    max_frames=26,
    cameras=2,
    width=96,
    height=96,
    fps=_FPS,
    crf=18,
    data_file_mb=0.01,
    video_file_mb=0.1,
)
_PACKAGES = ("lerobot", "torchcodec", "datasets", "torch", "av")


def hold_contest(
    only: Sequence[str], events: Sequence[str], workers: int, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Return rates of all contestants whose packages are there, and what they deliver."""
    config.quiet_encoders()
    chosen, races = choose_named(CONTESTANTS, only), choose_named(EVENTS, events)
    present = [one for one in chosen if not one.package or find_spec(one.package)]
    one_file = replace(_CHECKED, data_file_mb=100, video_file_mb=200)
    images = replace(_CHECKED, image_cameras=2, data_file_mb=1)
    checked = {
        ("video", "video, several files"): bench_dataset("peers-check", _CHECKED),
        ("video", "video, one file"): bench_dataset("peers-check", one_file),
        ("image", "images, several files"): bench_dataset("peers-check", images),
    }
    results = [row for event in races for row in _race(event, present, workers, rounds, seconds)]
    delivery = [
        {"contestant": one.name, "stored": title, **_check(one, root)}
        for (stored, title), root in checked.items()
        for one in present
        if stored in one.stored
    ]
    return {
        "machine": machine(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "absent": [one.name for one in chosen if one not in present],
        "workers": workers,
        "batch_size": _BATCH_SIZE,
        "rounds": rounds,
        "results": results,
        "delivery": delivery,
    }


def _race(
    event: Event,
    present: Sequence[Contestant],
    workers: int,
    rounds: int,
    seconds: float,
) -> list[Figures]:
    root = event.shape.open()
    racing = [one for one in present if event.stored in one.stored]
    found: dict[str, list[Figures]] = {one.name: [] for one in racing}
    for number in range(rounds):
        for one in racing:
            asked = {"seconds": seconds, "offsets": event.offsets, "workers": workers}
            figures = _ask(one, root, "speed", batch_size=_BATCH_SIZE, **asked)
            found[one.name].append(figures)
            said = figures.get("failed") or f"{figures['images_per_s']:,.0f} images/s"
            print(
                f"{event.shape.title}, {event.mode}, round {number + 1}, {one.name}: {said}",
                flush=True,
            )
    row = {"data": event.shape.title, "mode": event.mode}
    return [
        {**row, "contestant": one.name, "how": one.how, **_summed_up(found[one.name])}
        for one in racing
    ]


def _summed_up(runs: Sequence[Figures]) -> Figures:
    failed = [run["failed"] for run in runs if "failed" in run]
    if failed:
        return {"failed": failed[0]}
    return {**medians(runs), "images_per_s_rounds": [run["images_per_s"] for run in runs]}


def _check(one: Contestant, root: Path) -> Figures:
    found = _ask(one, root, "delivery", batch_size=8, offsets=[0], workers=1)
    print(f"delivery of {one.name}: {found}", flush=True)
    return found


def _ask(one: Contestant, root: Path, task: str, **more: Any) -> Figures:
    """Return the figures of one run in a process of its own, or why there are none."""
    asked = {"task": task, "contestant": one.name, "root": str(root), **more}
    command = [sys.executable, "-m", "robostream.bench.peers.one_run", json.dumps(asked)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {_TIMEOUT_S} s"}
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode != 0:
        return {"failed": lines[-1] if lines else f"exit code {done.returncode}"}
    found: Figures = json.loads(lines[-1])
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
