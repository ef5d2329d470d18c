# SPDX-License-Identifier: Apache-2.0
"""What is there: info.json, the episode table, tasks and statistics of a dataset.

Workers load neither feature_stats.py nor v2.py: their names load on first use.

locate.py        where a dataset is: folder, URL or Hub commit; which versions can be read
depth.py         depth as 12-bit codes
features.py      the feature entries of info.json
info.py          info.json
stats.py         statistics: parsed, aggregated, converted to a depth unit
feature_stats.py  statistics of columns and cameras
decoded_size.py  the memory of decoded Parquet, from its page headers
parquet.py       Parquet files, read within a memory budget
episodes.py      the episode table, in columns; contradictions between tables
tasks.py         the task texts
v2.py            the tables and statistics of v2.0 and v2.1, as lines of JSON
metadata.py      LeRobotDatasetMetadata: all of the above under LeRobot's names
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The other stages import these names from here.
from robostream.meta.depth import DepthCoding, decode_depth, depth_unit, encode_depth
from robostream.meta.episodes import EpisodeTable, noting_contradictions
from robostream.meta.features import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    Features,
    decoded_bytes,
    dimension_names,
    image_shape,
    is_depth,
    keys_of_dtype,
    validate_features,
)
from robostream.meta.info import DatasetInfo, parse_info
from robostream.meta.locate import is_being_recorded, pin_and_download, shorten_names
from robostream.meta.metadata import LeRobotDatasetMetadata, forward, location_of, resize_cameras
from robostream.meta.parquet import OpenParquet, readable_parquet
from robostream.meta.stats import QUANTILES, FeatureStats, Stats, aggregate_stats, combine_stats
from robostream.meta.tasks import TaskTable, tasks_to_arrow

if TYPE_CHECKING:
    from robostream.meta.feature_stats import (
        COLOUR,
        DEPTH,
        MOMENTS,
        NO_STATS_DTYPES,
        as_lists,
        column_stats,
        sampled_frames,
    )
    from robostream.meta.v2 import read_episode_stats

_ON_FIRST_USE = {
    "feature_stats": "COLOUR DEPTH MOMENTS NO_STATS_DTYPES as_lists column_stats sampled_frames",
    "v2": "read_episode_stats",
}
_HOMES = {name: home for home, names in _ON_FIRST_USE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'robostream.meta' has no attribute {name!r}")
    return getattr(importlib.import_module(f"robostream.meta.{_HOMES[name]}"), name)
