# SPDX-License-Identifier: Apache-2.0
"""Check what a loader delivers in an epoch: every frame once, the right images, a stable order."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from PIL import Image

from robostream.bench.loaders import LoaderEntry, LoadRequest
from robostream.bench.results import Figures
from robostream.meta import LeRobotDatasetMetadata

Images = npt.NDArray[np.uint8]
# The mean difference between two decoders' images of one frame is below this, in levels of 255.
# Images of different frames differ by far more.
_ROUNDING = 3.0


def check_delivery(entry: LoaderEntry, request: LoadRequest) -> Figures:
    """Return counts of one epoch, and whether another worker changes the order."""
    meta = LeRobotDatasetMetadata("bench/delivery", root=request.root)
    expected = expected_images(Path(request.root))
    order: list[int] = []
    distinct: list[int] = []
    wrong = 0
    ends = meta.episodes["dataset_to_index"]
    for batch in entry.open(request):
        indices = np.asarray(batch["index"]).reshape(-1)
        order += indices.tolist()
        distinct.append(len(np.unique(np.searchsorted(ends, indices, side="right"))))
        wrong += sum(
            not is_right(batch[key][place], images, index)
            for place, index in enumerate(indices.tolist())
            for key, images in expected.items()
        )
    num_seen = len(Counter(order))
    other = _order(entry.open(replace(request, workers=request.workers + 1)))
    return {
        "frames": meta.total_frames,
        "delivered": len(order),
        "missing": meta.total_frames - num_seen,
        "repeated": len(order) - num_seen,
        "wrong_pictures": wrong,
        "pictures": len(order) * len(expected),
        "same_order_with_more_workers": order == other,
        "episodes_per_batch": float(np.mean(distinct)),
    }


def _order(batches: Iterable[dict[str, Any]]) -> list[int]:
    return [int(index) for batch in batches for index in np.asarray(batch["index"]).reshape(-1)]


def is_right(image: Any, images: Images, index: int) -> bool:
    """Return whether an image is closest to that of its own frame, among its neighbours.

    Decoders round colours differently; neighbouring frames differ by more than that.
    """
    given = in_levels(image)
    near = range(max(0, index - 3), min(len(images), index + 4))
    gaps = {at: float(np.abs(images[at] - given).mean()) for at in near}
    return gaps[index] <= min(gaps.values()) + 1e-6 and gaps[index] < _ROUNDING


def in_levels(image: Any) -> npt.NDArray[np.float32]:
    """Return an image as (height, width, 3) from 0 to 255; some loaders give 0 to 1. Pure."""
    given = np.asarray(image)
    levels = given.astype(np.float32) * (255 if given.dtype.kind == "f" else 1)
    return levels.transpose(1, 2, 0) if levels.shape[0] == 3 else levels


def expected_images(root: Path) -> dict[str, Images]:
    """Return every image of a dataset by camera, decoded file by file without robostream's decoder.

    Each array is (frames, height, width, 3).
    """
    meta = LeRobotDatasetMetadata("bench/delivery", root=root)
    found = {key: _from_videos(meta, root, key) for key in meta.video_keys}
    return found | {key: _from_rows(root, key) for key in meta.camera_keys if key not in found}


def _from_videos(meta: LeRobotDatasetMetadata, root: Path, key: str) -> Images:
    files: dict[Path, Images] = {}
    images = []
    for episode in range(meta.total_episodes):
        path = root / meta.get_video_file_path(episode, key)
        if path not in files:
            with av.open(str(path)) as container:
                frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
            files[path] = np.stack(frames)
        first = round(float(meta.episodes[f"videos/{key}/from_timestamp"][episode]) * meta.fps)
        images.append(files[path][first : first + int(meta.episodes["length"][episode])])
    return np.concatenate(images)


def _from_rows(root: Path, key: str) -> Images:
    rows: list[Any] = pq.read_table(root / "data", columns=["index", key]).sort_by("index")[key]
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"].as_py()))) for row in rows])
