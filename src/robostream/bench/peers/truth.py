# SPDX-License-Identifier: Apache-2.0
"""The right pictures of a small dataset, decoded file by file with nothing of robostream's."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from PIL import Image

from robostream.meta import LeRobotDatasetMetadata

Pictures = npt.NDArray[np.uint8]


def true_pictures(root: Path) -> dict[str, Pictures]:
    """Return every picture of a dataset: by camera, (frames, height, width, 3)."""
    meta = LeRobotDatasetMetadata("bench/truth", root=root)
    found = {key: _of_videos(meta, root, key) for key in meta.video_keys}
    return found | {key: _of_rows(root, key) for key in meta.camera_keys if key not in found}


def _of_videos(meta: LeRobotDatasetMetadata, root: Path, key: str) -> Pictures:
    files: dict[Path, Pictures] = {}
    pictures = []
    for episode in range(meta.total_episodes):
        path = root / meta.get_video_file_path(episode, key)
        if path not in files:
            with av.open(str(path)) as container:
                frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
            files[path] = np.stack(frames)
        first = round(float(meta.episodes[f"videos/{key}/from_timestamp"][episode]) * meta.fps)
        pictures.append(files[path][first : first + int(meta.episodes["length"][episode])])
    return np.concatenate(pictures)


def _of_rows(root: Path, key: str) -> Pictures:
    rows: list[Any] = pq.read_table(root / "data", columns=["index", key]).sort_by("index")[key]
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"].as_py()))) for row in rows])
