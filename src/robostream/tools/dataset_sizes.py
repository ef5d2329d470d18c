# SPDX-License-Identifier: Apache-2.0
"""What a dataset weighs, from a listing of its files and from info.json: no data is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robostream.errors import NoListingError
from robostream.meta import LeRobotDatasetMetadata, decoded_bytes, location_of
from robostream.storage import list_files

_MEGABYTE = 1024**2
_NOT_NUMBERS = ("video", "image", "string", "language")


@dataclass(frozen=True, slots=True)
class DatasetSizes:
    """What a dataset weighs.

    Attributes:
        data_bytes: All Parquet files.
        video_bytes: All MP4 files.
        num_data_files: How many Parquet files there are.
        num_video_files: How many MP4 files there are.
        num_videos: Cameras stored as MP4.
        measured: Whether the bytes are file sizes; if not, they are the most that info.json allows.
        decoded_bytes_per_frame: All cameras of one frame, as decoders leave them.
        row_bytes_per_frame: All numbers of one frame.
    """

    data_bytes: int
    video_bytes: int
    num_data_files: int
    num_video_files: int
    num_videos: int
    measured: bool
    decoded_bytes_per_frame: int
    row_bytes_per_frame: int


def measure_dataset(meta: LeRobotDatasetMetadata) -> DatasetSizes:
    """Return what a dataset weighs. Lists its folders, which may take a while on a network."""
    num_data_files = _num_files(meta, "data")
    num_video_files = sum(_num_files(meta, f"videos/{key}") for key in meta.video_keys)
    data = _file_sizes(meta, "data", ".parquet")
    videos = _file_sizes(meta, "videos", ".mp4") if meta.video_keys else []
    measured = len(data) >= num_data_files and len(videos) >= num_video_files
    if not measured:
        data = [int(meta.data_files_size_in_mb * _MEGABYTE)] * num_data_files
        videos = [int(meta.video_files_size_in_mb * _MEGABYTE)] * num_video_files
    return DatasetSizes(
        data_bytes=sum(data),
        video_bytes=sum(videos),
        num_data_files=num_data_files,
        num_video_files=num_video_files,
        num_videos=len(meta.video_keys),
        measured=measured,
        decoded_bytes_per_frame=sum(decoded_bytes(meta.features[key]) for key in meta.camera_keys),
        row_bytes_per_frame=_row_bytes_per_frame(meta),
    )


def _file_sizes(meta: LeRobotDatasetMetadata, folder: str, suffix: str) -> list[int]:
    try:
        return list(list_files(location_of(meta), folder, suffix).values())
    except NoListingError:
        return []  # plain web servers have no listing


def _num_files(meta: LeRobotDatasetMetadata, prefix: str) -> int:
    chunks, files = (meta.episodes[f"{prefix}/{name}_index"] for name in ("chunk", "file"))
    return int(np.unique(np.stack([chunks, files]), axis=1).shape[1])


def _row_bytes_per_frame(meta: LeRobotDatasetMetadata) -> int:
    numbers = [entry for entry in meta.features.values() if entry["dtype"] not in _NOT_NUMBERS]
    return sum(
        int(np.dtype(entry["dtype"]).itemsize * np.prod(entry["shape"])) for entry in numbers
    )
