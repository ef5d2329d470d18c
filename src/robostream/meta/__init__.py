# SPDX-License-Identifier: Apache-2.0
"""What is there: info.json, the episode table, tasks and statistics of a dataset.

location.py  where a dataset's files lie
versions.py  which codebase versions can be read, and which Hub revision to take
hub.py       dataset repos on the Hugging Face Hub: pin a commit, download files
parquet.py   opening Parquet, with errors that name file and cure
atomic.py    writing a file so that nobody ever sees a part of it
features.py  the feature entries of info.json
info.py      info.json as a record
episodes.py  the episode table, held as columns
spans.py     whether an episode's seconds in a video are as many as its frames take
tasks.py     the task texts
stats.py     statistics over the whole dataset
depth.py     depth as 12-bit codes, and back
metadata.py  LeRobotDatasetMetadata: all of the above under LeRobot's names
"""

from pathlib import Path
from typing import Any

from robostream.meta.atomic import sync_folder, write_bytes_atomic
from robostream.meta.depth import DepthCoding, decode_depth, depth_unit, encode_depth
from robostream.meta.episodes import EpisodeTable
from robostream.meta.features import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    Features,
    decoded_bytes,
    image_shape,
    is_depth,
    keys_of_dtype,
    validate_features,
)
from robostream.meta.info import DatasetInfo, parse_info
from robostream.meta.location import Location, as_connection_error, as_location, written_root
from robostream.meta.metadata import LeRobotDatasetMetadata
from robostream.meta.parquet import open_parquet, readable_parquet
from robostream.meta.spans import check_span
from robostream.meta.stats import Stats, parse_stats, rescale_depth
from robostream.meta.tasks import TaskTable, tasks_from_arrow, tasks_to_arrow


def pin_and_download(*args: Any, **options: Any) -> tuple[Path, str]:
    """Return where files of a Hub dataset were downloaded; see `meta.hub`, which this loads."""
    from robostream.meta import hub

    return hub.pin_and_download(*args, **options)


__all__ = [
    "CAMERA_DTYPES",
    "DEFAULT_FEATURES",
    "LANGUAGE_KEYS",
    "DatasetInfo",
    "DepthCoding",
    "EpisodeTable",
    "Features",
    "LeRobotDatasetMetadata",
    "Location",
    "Stats",
    "TaskTable",
    "as_connection_error",
    "as_location",
    "check_span",
    "decode_depth",
    "decoded_bytes",
    "depth_unit",
    "encode_depth",
    "image_shape",
    "is_depth",
    "keys_of_dtype",
    "open_parquet",
    "parse_info",
    "parse_stats",
    "pin_and_download",
    "readable_parquet",
    "rescale_depth",
    "sync_folder",
    "tasks_from_arrow",
    "tasks_to_arrow",
    "validate_features",
    "write_bytes_atomic",
    "written_root",
]
