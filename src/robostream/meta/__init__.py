# SPDX-License-Identifier: Apache-2.0
"""What is there: info.json, the episode table, tasks and statistics of a dataset.

Workers do not load v2.py: its name loads on first use.

locate.py        where a dataset is: folder, URL or Hub commit; which versions can be read
features.py      the feature entries of info.json; depth as 12-bit codes
info.py          info.json
stats.py         statistics: parsed, aggregated, converted, computed from columns and images
decoded_size.py  the memory of decoded Parquet, from its page headers
parquet.py       Parquet files, read within a memory budget; the task texts
episodes.py      the episode table, in columns; contradictions between tables
v2.py            the tables and statistics of v2.0 and v2.1, as lines of JSON
metadata.py      LeRobotDatasetMetadata: all of the above under LeRobot's names
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robostream.lazy import load_on_first_use

# The other stages import these names from here.
from robostream.meta.episodes import EpisodeTable, noting_contradictions
from robostream.meta.features import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    DepthCoding,
    Features,
    decode_depth,
    decoded_bytes,
    depth_unit,
    dimension_names,
    encode_depth,
    image_shape,
    is_depth,
    keys_of_dtype,
    validate_features,
)
from robostream.meta.info import DatasetInfo, parse_info
from robostream.meta.locate import is_being_recorded, pin_and_download, shorten_names
from robostream.meta.metadata import LeRobotDatasetMetadata, forward, location_of, resize_cameras
from robostream.meta.parquet import OpenParquet, TaskTable, readable_parquet, tasks_to_arrow
from robostream.meta.stats import (
    COLOUR,
    DEPTH,
    MOMENTS,
    NO_STATS_DTYPES,
    QUANTILES,
    FeatureStats,
    Stats,
    aggregate_stats,
    as_lists,
    as_stats,
    column_stats,
    combine_stats,
    sampled_frames,
)

if TYPE_CHECKING:
    from robostream.meta.v2 import read_episode_stats

__getattr__ = load_on_first_use("robostream.meta", {"v2": "read_episode_stats"})
