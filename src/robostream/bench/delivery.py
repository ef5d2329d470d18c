# SPDX-License-Identifier: Apache-2.0
"""What a loader delivers in one epoch: each frame once, and the right images?

Every image is compared with the one decoded from the file.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from PIL import Image

from robostream.bench.case import BenchCase
from robostream.bench.loaders import OpenLoader
from robostream.bench.results import Figures
from robostream.decode import one_thread
from robostream.meta import LeRobotDatasetMetadata

Images = npt.NDArray[np.uint8]
# The mean difference between two decoders' images of one frame is below this, in levels of 255.
# Images of different frames differ by far more.
_ROUNDING = 3.0


def count_delivered(open_loader: OpenLoader, case: BenchCase) -> Figures:
    """Return counts of one epoch, and whether another worker changes the order.

    Counts missing and repeated frames, and images that are not those of their frame.
    """
    torch.set_num_threads(1)
    meta = LeRobotDatasetMetadata("bench/delivery", root=case.data.open())
    expected = expected_images(meta)
    order: list[int] = []
    distinct: list[int] = []
    wrong = 0
    ends = meta.episodes["dataset_to_index"]
    for batch in open_loader(case):
        indices = np.asarray(batch["index"]).reshape(-1)
        order += indices.tolist()
        distinct.append(len(np.unique(np.searchsorted(ends, indices, side="right"))))
        wrong += sum(
            not is_right(batch[key][place], images, index)
            for place, index in enumerate(indices.tolist())
            for key, images in expected.items()
        )
    num_seen = len(set(order))
    others = open_loader(replace(case, workers=(case.workers or 0) + 1))
    other = [int(index) for batch in others for index in np.asarray(batch["index"]).reshape(-1)]
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


def expected_images(meta: LeRobotDatasetMetadata) -> dict[str, Images]:
    """Return every image of a dataset by camera, decoded file by file without robostream's decoder.

    Each array is (frames, height, width, 3).
    """
    read = {key: _from_videos if key in meta.video_keys else _from_rows for key in meta.camera_keys}
    return {key: read[key](meta, key) for key in read}


def _from_videos(meta: LeRobotDatasetMetadata, key: str) -> Images:
    files: dict[Path, Images] = {}
    images = []
    for episode in range(meta.total_episodes):
        path = Path(meta.root, meta.get_video_file_path(episode, key))
        if path not in files:
            with av.open(str(path)) as container:
                # On one thread: PyAV's own threads for this would not survive a loader's fork.
                options = one_thread()
                frames = [
                    f.to_ndarray(format="rgb24", **options) for f in container.decode(video=0)
                ]
            files[path] = np.stack(frames)
        first = round(float(meta.episodes[f"videos/{key}/from_timestamp"][episode]) * meta.fps)
        images.append(files[path][first : first + int(meta.episodes["length"][episode])])
    return np.concatenate(images)


def _from_rows(meta: LeRobotDatasetMetadata, key: str) -> Images:
    table = pq.read_table(Path(meta.root, "data"), columns=["index", key]).sort_by("index")
    rows: list[Any] = table[key].to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in rows])
