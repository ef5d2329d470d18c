# SPDX-License-Identifier: Apache-2.0
"""The floor of a local dataset: decoding its pictures alone, in as many processes as workers."""

from __future__ import annotations

from robostream.bench.floor import decode_floor, picture_floor
from robostream.meta import LeRobotDatasetMetadata, location_of


def floor_figures(
    meta: LeRobotDatasetMetadata, processes: int, seconds: float
) -> dict[str, float | None]:
    """Return the floor in images/s; None where files are not local or nothing was asked for.

    A dataset with videos and pictures in Parquet is measured by its videos.
    """
    root = location_of(meta).local_root
    if root is None or not seconds:
        return {"floor_images_per_s": None}
    if meta.video_keys:
        files, measure = sorted(map(str, root.glob("videos/**/*.mp4"))), decode_floor
    else:
        files, measure = sorted(map(str, root.glob("data/**/*.parquet"))), picture_floor
    if not files or not meta.camera_keys:
        return {"floor_images_per_s": None}
    return {"floor_images_per_s": measure(files, processes, at_most_s=seconds)}
