# SPDX-License-Identifier: Apache-2.0
"""What is there: info.json, the episode table, tasks and statistics of a dataset.

locate.py        where a dataset is: folder, URL or Hub commit; which versions can be read
depth.py         depth as 12-bit codes
features.py      the feature entries of info.json
info.py          info.json and stats.json
decoded_size.py  the memory of decoded Parquet, from its page headers
parquet.py       Parquet files, read within a memory budget
episodes.py      the episode table, in columns
tasks.py         the task texts
metadata.py      LeRobotDatasetMetadata: all of the above under LeRobot's names
"""

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
from robostream.meta.info import DatasetInfo, Stats
from robostream.meta.locate import is_being_recorded, pin_and_download
from robostream.meta.metadata import LeRobotDatasetMetadata, forward, location_of, resize_cameras
from robostream.meta.parquet import OpenParquet, open_parquet, readable_parquet
from robostream.meta.tasks import TaskTable, tasks_to_arrow

__all__ = [
    "CAMERA_DTYPES",
    "DEFAULT_FEATURES",
    "LANGUAGE_KEYS",
    "DatasetInfo",
    "DepthCoding",
    "EpisodeTable",
    "Features",
    "LeRobotDatasetMetadata",
    "OpenParquet",
    "Stats",
    "TaskTable",
    "decode_depth",
    "decoded_bytes",
    "depth_unit",
    "encode_depth",
    "forward",
    "image_shape",
    "is_being_recorded",
    "is_depth",
    "keys_of_dtype",
    "location_of",
    "open_parquet",
    "pin_and_download",
    "readable_parquet",
    "resize_cameras",
    "tasks_to_arrow",
    "validate_features",
]
