# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and pictures put together."""

from robostream.assemble.batch import BatchWriter, Sample
from robostream.assemble.download import localise
from robostream.assemble.episode import Episode, VideoSpan, index_folder, load_episode
from robostream.assemble.layout import SampleLayout
from robostream.assemble.map_style import MapReader
from robostream.assemble.pictures import read_picture
from robostream.assemble.rows import RowReader
from robostream.assemble.selection import (
    AbsoluteToRelative,
    EpisodeFilter,
    FrameSelection,
    select_episodes,
)
from robostream.assemble.spec import ImageTransforms, SampleSpec, make_spec
from robostream.assemble.times import check_times
from robostream.assemble.windows import window_targets

__all__ = [
    "AbsoluteToRelative",
    "BatchWriter",
    "Episode",
    "EpisodeFilter",
    "FrameSelection",
    "ImageTransforms",
    "MapReader",
    "RowReader",
    "Sample",
    "SampleLayout",
    "SampleSpec",
    "VideoSpan",
    "check_times",
    "index_folder",
    "load_episode",
    "localise",
    "make_spec",
    "read_picture",
    "select_episodes",
    "window_targets",
]
