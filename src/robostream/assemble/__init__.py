# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and images put together. Imports no torch.

Workers load only what delivers samples: the names of the other files load on first use.

selection.py      the selected episodes
split.py          episodes to train on and to validate on
kept_frames.py    which of their frames are delivered, and how often
spec.py           what a sample holds: columns, cameras, windows
video_spans.py    the span of each episode in a camera's video file
opened.py         an opened dataset, from which every reader is made
source.py         one dataset of a mixture
dimensions.py     one feature of several datasets, aligned by the names of its dimensions
schema.py         what every sample of a mixture has
derive.py         that schema, derived from the sources
mixture_file.py   mixtures described in YAML
mixture_stats.py  statistics of groups of sources, and how they normalise values
columns.py        from Arrow columns to checked arrays
shared_rows.py    data files decoded once per machine
rows.py           the rows of an episode, read and cached
images.py         images stored in Parquet
layout.py         how the samples of a dataset lie in a batch
sample.py         one sample written into a batch
batch_layout.py   how samples of one or several datasets lie in the same batches
cameras.py        what a camera's files hold: frames, sizes, pixel formats, single images
dataset_stats.py  statistics recomputed from rows
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The other stages import these names from here.
from robostream.assemble.batch_layout import (
    BatchLayout,
    SourceLayout,
    mixed_batches,
    place_source,
    plain_batches,
)
from robostream.assemble.columns import check_episode, check_schema, check_times
from robostream.assemble.images import decode_image
from robostream.assemble.kept_frames import EpisodeWeights, FrameRanges, keep_frames
from robostream.assemble.layout import ArrayLayout, CameraLayout, SampleLayout
from robostream.assemble.opened import (
    DatasetLocation,
    OpenedDataset,
    choose_cache,
    download_from_hub,
    open_dataset,
)
from robostream.assemble.rows import EpisodeRows, RowCache, RowLru, RowReader, new_row_lru
from robostream.assemble.sample import (
    Arrays,
    decode_images,
    decode_images_into,
    fill_row,
    read_texts,
    write_black,
    write_depth,
)
from robostream.assemble.selection import AbsoluteToRelative, EpisodeFilter, FrameSelection
from robostream.assemble.spec import (
    ImageTransforms,
    Resize,
    SampleOptions,
    SampleSpec,
    check_transforms,
    window_targets,
)
from robostream.assemble.video_spans import find_byte_span

if TYPE_CHECKING:
    from robostream.assemble.cameras import (
        CameraReader,
        find_first_frames,
        find_video_shape,
        find_yuv_cameras,
        probe_cameras,
        warn_of_shape,
    )
    from robostream.assemble.dataset_stats import compute_stats
    from robostream.assemble.derive import derive_schema
    from robostream.assemble.mixture_file import load_yaml, read_mixture_file
    from robostream.assemble.mixture_stats import (
        Affine,
        SourceStats,
        affine,
        cached_stats,
        exact_stats,
        pool_stats,
    )
    from robostream.assemble.schema import Schema, SchemaOptions, SourceFeatures, SourceMap
    from robostream.assemble.source import Source
    from robostream.assemble.split import EpisodeSplit, check_no_leakage, split_episodes

_HOMES = {
    "Affine": "mixture_stats",
    "affine": "mixture_stats",
    "cached_stats": "mixture_stats",
    "CameraReader": "cameras",
    "check_no_leakage": "split",
    "compute_stats": "dataset_stats",
    "derive_schema": "derive",
    "EpisodeSplit": "split",
    "exact_stats": "mixture_stats",
    "find_first_frames": "cameras",
    "find_video_shape": "cameras",
    "find_yuv_cameras": "cameras",
    "load_yaml": "mixture_file",
    "pool_stats": "mixture_stats",
    "probe_cameras": "cameras",
    "read_mixture_file": "mixture_file",
    "Schema": "schema",
    "SchemaOptions": "schema",
    "Source": "source",
    "SourceFeatures": "schema",
    "SourceMap": "schema",
    "SourceStats": "mixture_stats",
    "split_episodes": "split",
    "warn_of_shape": "cameras",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'robostream.assemble' has no attribute {name!r}")
    return getattr(importlib.import_module(f"robostream.assemble.{_HOMES[name]}"), name)
