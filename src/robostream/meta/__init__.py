# SPDX-License-Identifier: Apache-2.0
"""What is there: info.json, the episode table, tasks and statistics of a dataset.

versions.py  which codebase versions can be read, and which Hub revision to take
pinning.py   which commit of a Hub dataset is read
decoded_size.py  the memory that Parquet takes when it is decoded, from its page headers
parquet.py   opening Parquet, with errors that name file and cure
features.py  the feature entries of info.json
info.py      info.json as a record
missing.py   what lies where a dataset was looked for
episodes.py  the episode table, held as columns
tasks.py     the task texts
stats.py     statistics over the whole dataset
depth.py     depth as 12-bit codes, and back
metadata.py  LeRobotDatasetMetadata: all of the above under LeRobot's names
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
from robostream.meta.info import DatasetInfo, parse_info
from robostream.meta.metadata import LeRobotDatasetMetadata, location_of, resize_cameras
from robostream.meta.missing import is_being_recorded
from robostream.meta.parquet import OpenParquet, open_parquet, readable_parquet
from robostream.meta.pinning import pin_and_download
from robostream.meta.stats import Stats, parse_stats, rescale_depth
from robostream.meta.tasks import TaskTable, tasks_from_arrow, tasks_to_arrow

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
    "image_shape",
    "is_being_recorded",
    "is_depth",
    "keys_of_dtype",
    "location_of",
    "open_parquet",
    "parse_info",
    "parse_stats",
    "pin_and_download",
    "readable_parquet",
    "rescale_depth",
    "resize_cameras",
    "tasks_from_arrow",
    "tasks_to_arrow",
    "validate_features",
]
