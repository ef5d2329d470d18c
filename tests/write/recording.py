# SPDX-License-Identifier: Apache-2.0
"""Small recordings for the writer's tests, and reading them back with pyarrow and PyAV alone."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream.meta import LeRobotDatasetMetadata
from robostream.write import DatasetWriter, VideoEncoderConfig, create_writer

HEIGHT, WIDTH, FPS = 64, 96, 20
BITS = 12
TOP = "observation.images.top"
# The quickest codec here; most rules do not depend on it.
QUICK = VideoEncoderConfig(codec="h264", preset="ultrafast")
NAMES = ["height", "width", "channels"]
CAMERA = {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": NAMES}
STATE = {"dtype": "float32", "shape": (6,), "names": None}
FEATURES: dict[str, Any] = {TOP: CAMERA, "observation.state": STATE}


def numbered_image(number: int) -> np.ndarray:
    """A gradient that moves, with the frame's number in it as black and white blocks."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    image = ((np.stack([x * 2 + number * 3, y * 3, x + y], -1) % 256) * 0.6 + 40).astype(np.uint8)
    for bit in range(BITS):
        image[:8, bit * 8 : bit * 8 + 8] = 255 * (number >> bit & 1)
    return image


def number_in(image: np.ndarray) -> int:
    """The number that a decoded HWC image shows."""
    return sum(int(image[2:6, b * 8 + 2 : b * 8 + 6].mean() > 127) << b for b in range(BITS))


def frame(number: int, **more: Any) -> dict[str, Any]:
    """One frame of FEATURES, all of it made of its number."""
    state = np.full(6, number, np.float32)
    return {TOP: numbered_image(number), "observation.state": state, "task": "move", **more}


def record(writer: DatasetWriter, lengths: Sequence[int], *, first: int = 0) -> int:
    """Save episodes whose frames are numbered consecutively; returns the next number."""
    for length in lengths:
        for _ in range(length):
            writer.add_frame(frame(first))
            first += 1
        writer.save_episode()
    return first


def quick_writer(root: Path, features: dict[str, Any] = FEATURES, **more: Any) -> DatasetWriter:
    """A writer of a new dataset with the quickest encoder."""
    return create_writer(root, **{"fps": FPS, "features": features, "encoder": QUICK, **more})


def load(root: Path) -> LeRobotDatasetMetadata:
    """The metadata of a finished dataset."""
    return LeRobotDatasetMetadata("test", root=root)


def rows(root: Path) -> pa.Table:
    """All rows, as a reader that takes every file it finds sees them."""
    files = sorted((root / "data").glob("*/*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def decode(path: Path, pix_fmt: str = "rgb24") -> list[tuple[float, np.ndarray]]:
    """Every frame of a video with its time in seconds, in the order shown."""
    with av.open(str(path)) as container:
        return [
            (float(f.pts * f.time_base), f.to_ndarray(format=pix_fmt))
            for f in container.decode(video=0)
        ]


def check_videos(root: Path, camera: str = TOP) -> None:
    """Each video frame shows its number, at the time in the tables, and no frame is extra."""
    meta = load(root)
    files: dict[Path, list[tuple[float, np.ndarray]]] = {}
    expected: dict[Path, int] = {}
    for episode in meta.episodes:
        path = root / meta.get_video_file_path(episode["episode_index"], camera)
        if path not in files:
            files[path] = decode(path)
        frames = files[path]
        start = episode[f"videos/{camera}/from_timestamp"]
        stop = episode[f"videos/{camera}/to_timestamp"]
        first = round(start * meta.fps)
        assert abs(stop - start - episode["length"] / meta.fps) < 1e-9
        for k in range(episode["length"]):
            time_s, image = frames[first + k]
            assert abs(time_s - (start + k / meta.fps)) < 1e-6
            assert number_in(image) == episode["dataset_from_index"] + k
        expected[path] = expected.get(path, 0) + episode["length"]
    assert {path: len(frames) for path, frames in files.items()} == expected


def check_dataset(root: Path, lengths: Sequence[int]) -> None:
    """The dataset holds exactly these episodes of numbered frames, rows and videos alike."""
    meta, table = load(root), rows(root)
    total = sum(lengths)
    assert meta.episodes["length"].tolist() == list(lengths)
    assert (meta.total_frames, meta.total_episodes) == (total, len(lengths))
    assert table["index"].to_pylist() == list(range(total))
    assert table["frame_index"].to_pylist() == [k for n in lengths for k in range(n)]
    assert table["episode_index"].to_pylist() == [
        e for e, n in enumerate(lengths) for _ in range(n)
    ]
    assert [state[0] for state in table["observation.state"].to_pylist()] == list(range(total))
    check_videos(root)
    assert not (root / ".recording").exists()


@contextlib.contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Limit the size of any file of this process, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
