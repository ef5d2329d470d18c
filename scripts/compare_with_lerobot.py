# SPDX-License-Identifier: Apache-2.0
"""Compare robostream with LeRobot in both directions, and print a table.

Needs a Python 3.12 that has both: `pip install "lerobot[dataset]==0.6.1"`, then

    PYTHONPATH=src python scripts/compare_with_lerobot.py [folder to keep the datasets in]

robostream and LeRobot record the same frames. In part 1, LeRobot reads robostream's dataset: values
as recorded, pixels and metadata as in its own dataset. In part 2, robostream and LeRobot read
LeRobot's dataset: every item is equal. In part 3, each resumes the other's dataset, and LeRobot
reads both. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow.parquet as pq
import torch
from lerobot.configs.video import DepthEncoderConfig as LeRobotDepthEncoder
from lerobot.configs.video import RGBEncoderConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset as Reference

from robostream.write import VideoEncoderConfig, create_writer, resume_writer

HEIGHT, WIDTH = 64, 96
BITS = 12
TASKS = ("stack the cups", "open the drawer", "wait")
# LeRobot estimates quantiles from 5000 bins; robostream computes them exactly.
BIN = 1 / 5000
# LeRobot sums pixels in float32; robostream sums them exactly.
FLOAT32_SUMS = 5e-3
# LeRobot numbers the new tasks of an episode in set order, which changes from run to run.
UNORDERED = "task_index"


@dataclass(frozen=True)
class Case:
    """One dataset to record with both writers."""

    name: str
    fps: int
    lengths: tuple[int, ...]
    dtype: str = "video"
    codec: dict[str, Any] = field(default_factory=dict)
    video_mb: float = 100
    data_mb: float = 100
    more: bool = False


# Only AV1 and images have an episode of one frame: LeRobot cannot append one where the codec
# reorders frames (its muxer refuses the decode times); robostream can.
CASES = (
    Case("AV1, many files", 20, (17, 9, 1, 14, 21, 30), video_mb=0.02, data_mb=0.01),
    Case(
        "H.264, B-frames",
        30,
        (40, 12, 35, 120),
        # Without mbtree, as x264 returns other bytes each time with it.
        codec={"codec": "h264", "g": 12, "crf": 23, "extra_options": {"bf": 3, "mbtree": 0}},
    ),
    Case("images in Parquet", 15, (12, 1, 7), dtype="image"),
    Case("depth, arrays, texts", 10, (12, 8, 5), more=True),
    Case("120 frames, sampled", 25, (120, 300)),
)


class Report:
    """The table, printed line by line."""

    def __init__(self) -> None:
        self.failures = 0
        print(f"{'dataset':<22} {'check':<46} {'compared':>9} {'worst':>10}  result")

    def add(self, case: Case, check: str, worst: list[float], *, bound: float = 0.0) -> None:
        """Print one line; every number in `worst` must be at most `bound`."""
        largest = max(worst, default=0.0)
        good = bool(worst) and largest <= bound
        self.failures += not good
        verdict = "ok" if good else "DIFFERS"
        print(f"{case.name:<22} {check:<46} {len(worst):>9} {largest:>10.3g}  {verdict}")


def features_of(case: Case) -> dict[str, Any]:
    names = ["height", "width", "channels"]
    camera = {"dtype": case.dtype, "shape": (HEIGHT, WIDTH, 3), "names": names}
    features: dict[str, Any] = {
        "observation.images.top": camera,
        "observation.images.wrist": dict(camera),
        "observation.state": {"dtype": "float32", "shape": (6,), "names": None},
        "action": {"dtype": "float32", "shape": (7,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    }
    if not case.more:
        return features
    depth = {"dtype": "video", "shape": (HEIGHT, WIDTH, 1), "names": names}
    return features | {
        "observation.images.depth_mm": {**depth, "info": {"is_depth_map": True}},
        "observation.images.depth_m": {**depth, "info": {"is_depth_map": True}},
        "observation.grid": {"dtype": "float64", "shape": (2, 3), "names": None},
        "observation.cube": {"dtype": "uint8", "shape": (2, 2, 3), "names": None},
        "note": {"dtype": "string", "shape": (1,), "names": None},
        "count": {"dtype": "int32", "shape": (1,), "names": None},
    }


def make_image(number: int, shift: int) -> np.ndarray:
    """Return a moving gradient that shows the frame's number as black and white blocks."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    image = np.stack([x * 2 + number * 3, y * 3 + shift, x + y], -1) % 256
    image = (image * 0.6 + 40).astype(np.uint8)
    for bit in range(BITS):
        image[:8, bit * 8 : bit * 8 + 8] = 255 * (number >> bit & 1)
    return image


def number_in(image: np.ndarray) -> int:
    """Return the frame number that a CHW image shows."""
    return sum(int(image[:, 2:6, b * 8 + 2 : b * 8 + 6].mean() > 127) << b for b in range(BITS))


def frames_of(case: Case) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for episode, length in enumerate(case.lengths):
        for frame in range(length):
            yield episode, frame_of(case, number, episode, frame, length)
            number += 1


def frame_of(case: Case, number: int, episode: int, frame: int, length: int) -> dict[str, Any]:
    phase = episode + 0.13 * frame
    values = {
        "observation.images.top": make_image(number, 0),
        "observation.images.wrist": make_image(number, 90),
        "observation.state": np.sin(phase + np.arange(6)).astype(np.float32),
        "action": np.cos(2 * phase + np.arange(7)).astype(np.float32),
        "next.done": np.array([frame == length - 1]),
        # Two tasks in one episode, now and then.
        "task": TASKS[episode % 2] if frame < 20 else TASKS[2],
    }
    if not case.more:
        return values
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    distance = (500 + 8 * x + 5 * y + 20 * frame)[..., None]
    return values | {
        "observation.images.depth_mm": distance.astype(np.uint16),
        "observation.images.depth_m": (distance / 1000).astype(np.float32),
        "observation.grid": np.arange(6, dtype=np.float64).reshape(2, 3) + phase,
        "observation.cube": np.arange(12, dtype=np.uint8).reshape(2, 2, 3) + frame,
        "note": f"frame {frame} of {episode}",
        "count": np.array([frame * 3], np.int32),
    }


def record(case: Case, dataset: Any) -> None:
    current = 0
    for episode, frame in frames_of(case):
        if episode != current:
            dataset.save_episode()
            current = episode
        dataset.add_frame(dict(frame))
    dataset.save_episode()
    dataset.finalize()


def record_both(case: Case, folder: Path) -> tuple[Path, Path]:
    ours, theirs = folder / "robostream", folder / "lerobot"
    sizes = {"video_files_size_in_mb": case.video_mb, "data_files_size_in_mb": case.data_mb}
    shared = {"fps": case.fps, "features": features_of(case), "robot_type": "arm", **sizes}
    encoder = VideoEncoderConfig(**case.codec)
    record(case, create_writer(ours, use_videos=case.dtype == "video", encoder=encoder, **shared))
    codec = dict(case.codec)
    reference = Reference.create(
        "compare/lerobot",
        root=theirs,
        use_videos=case.dtype == "video",
        rgb_encoder=RGBEncoderConfig(vcodec=codec.pop("codec", "libsvtav1"), **codec),
        depth_encoder=LeRobotDepthEncoder(),
        **shared,
    )
    record(case, reference)
    return ours, theirs


def read(root: Path) -> Reference:
    return Reference("compare/any", root=root, return_uint8=True, video_backend="pyav")


def difference(a: Any, b: Any) -> float:
    """Return the largest difference of two values; infinity if their types differ."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return float("inf")
        return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0
    return 0.0 if type(a) is type(b) and a == b else float("inf")


def compare_with_recorded(case: Case, dataset: Reference, report: Report) -> None:
    values: list[float] = []
    numbers: list[float] = []
    for place, (_, frame) in enumerate(frames_of(case)):
        item = dataset[place]
        for key, given in frame.items():
            if key.startswith("observation.images.depth"):
                continue
            if key.startswith("observation.images"):
                numbers.append(abs(number_in(pixels(item[key])) - place))
            elif isinstance(given, str):
                values.append(difference(item[key], given))
            else:
                flat = given[0] if given.shape == (1,) else given
                values.append(difference(item[key], torch.tensor(np.asarray(flat).tolist())))
    report.add(case, "1. LeRobot reads ours: rows as recorded", values)
    report.add(case, "1. LeRobot reads ours: the right image each", numbers)


def pixels(image: torch.Tensor) -> np.ndarray:
    scale = 255 if image.dtype.is_floating_point else 1
    return (image * scale).numpy()


def compare_items(
    case: Case, a: Any, b: Any, report: Report, check: str, *, but: tuple[str, ...] = ()
) -> None:
    """Compare every key of every item; report pixels and other values separately."""
    rows: list[float] = [abs(len(a) - len(b))]
    images: list[float] = []
    for place in range(len(b)):
        one, other = a[place], b[place]
        rows.append(float(set(one) != set(other)))
        for key in (set(one) & set(other)).difference(but):
            found = images if key.startswith("observation.images") else rows
            found.append(difference(one[key], other[key]))
    report.add(case, f"{check}: rows", rows)
    report.add(case, f"{check}: pixels", images)


def compare_metadata(case: Case, ours: Path, theirs: Path, report: Report) -> None:
    files = [json.loads((root / "meta/info.json").read_text()) for root in (ours, theirs)]
    differing = [float(files[0].get(key) != value) for key, value in files[1].items()]
    report.add(case, "1. info.json", [*differing, float(list(files[0]) != list(files[1]))])
    schemas = []
    for relative in ("data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"):
        one, other = (pq.read_schema(root / relative) for root in (ours, theirs))
        schemas.append(float(not one.equals(other) or one.names != other.names))
    report.add(case, "1. Parquet schemas", schemas)
    data = [read(root).hf_dataset.features for root in (ours, theirs)]
    report.add(case, "1. features as `datasets` sees them", [float(data[0] != data[1])])


def compare_stats(case: Case, ours: Path, theirs: Path, report: Report) -> None:
    """Compare the statistics of each episode; global quantiles follow another rule since 0.6.2."""
    exact: list[float] = []
    quantiles: list[float] = []
    for one, other in zip(episode_rows(ours), episode_rows(theirs), strict=True):
        for name in (n for n in other if n.startswith("stats/") and UNORDERED not in n):
            low, high = (np.asarray(other[name.rsplit("/", 1)[0] + k]) for k in ("/min", "/max"))
            spread = np.maximum(high - low, np.maximum(np.abs(high), 1e-6) * 1e-3).max()
            gap = np.abs(np.asarray(one[name], float) - np.asarray(other[name], float)).max()
            (quantiles if "/q" in name else exact).append(float(gap / spread))
    report.add(case, "1. episode stats, relative to the range", exact, bound=FLOAT32_SUMS)
    report.add(case, "1. episode quantiles, relative to the range", quantiles, bound=1.01 * BIN)


def episode_rows(root: Path) -> list[dict[str, Any]]:
    files = sorted((root / "meta/episodes").glob("*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def compare(case: Case, folder: Path, report: Report) -> None:
    ours, theirs = record_both(case, folder)
    compare_with_recorded(case, read(ours), report)
    twins = read(ours), read(theirs)
    compare_items(case, *twins, report, "1. LeRobot reads ours as its own", but=(UNORDERED,))
    compare_metadata(case, ours, theirs, report)
    compare_stats(case, ours, theirs, report)
    from robostream.dataset import LeRobotDataset

    mine = LeRobotDataset("compare/any", root=theirs, return_uint8=True)
    compare_items(case, mine, read(theirs), report, "2. robostream reads LeRobot's")
    compare_resumed(case, ours, theirs, report)


def compare_resumed(case: Case, ours: Path, theirs: Path, report: Report) -> None:
    """Record all once more: robostream into LeRobot's dataset, LeRobot into robostream's."""
    record(case, resume_writer(theirs))
    codec = dict(case.codec)
    encoder = RGBEncoderConfig(vcodec=codec.pop("codec", "libsvtav1"), **codec)
    record(case, Reference.resume("compare/any", root=ours, rgb_encoder=encoder))
    twins = read(theirs), read(ours)
    compare_items(case, *twins, report, "3. resumed by the other", but=(UNORDERED,))
    doubled = [abs(len(d) - 2 * sum(case.lengths)) for d in twins]
    report.add(case, "3. resumed by the other: all frames", [float(d) for d in doubled])


def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        for number, case in enumerate(CASES):
            compare(case, folder / f"case{number}", report)
    print(f"{report.failures} checks failed" if report.failures else "all equal")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
