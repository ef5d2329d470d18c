# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and images put together. Imports no torch.

Workers load only what delivers samples: the names of the other files load on first use.

selection.py    the selected episodes, which of their frames are delivered, and how often
split.py        episodes to train on and to validate on
spec.py         what a sample holds: columns, cameras, windows
opened.py       an opened dataset, from which every reader is made; its frames in video files
columns.py      from Arrow columns to checked arrays
shared_rows.py  data files decoded once per machine
rows.py         the rows of an episode, read and cached
layout.py       how samples lie in a batch
sample.py       one sample written into a batch, with images stored in Parquet
cameras.py      what a camera's files hold: frames, sizes, pixel formats, single images
source.py       one dataset of a mixture; mixtures described in YAML
schema.py       what every sample of a mixture has
derive.py       that schema, derived from the sources; dimensions aligned by their names
placement.py    how the samples of several datasets lie in the same batches
stats.py        statistics recomputed from rows, or pooled; how they normalise values
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# The other stages import these names from here.
from robostream.assemble.columns import check_episode, check_schema, check_times
from robostream.assemble.layout import (
    ArrayLayout,
    BatchLayout,
    CameraLayout,
    SampleLayout,
    SourceLayout,
    plain_batches,
)
from robostream.assemble.opened import (
    DatasetLocation,
    OpenedDataset,
    choose_cache,
    download_from_hub,
    find_byte_span,
    open_dataset,
)
from robostream.assemble.rows import EpisodeRows, RowCache, RowLru, RowReader, new_row_lru
from robostream.assemble.sample import (
    Arrays,
    decode_image,
    decode_images,
    fill_row,
    fill_sample,
    read_texts,
    write_black,
    write_depth,
)
from robostream.assemble.selection import (
    AbsoluteToRelative,
    EpisodeFilter,
    EpisodeWeights,
    FrameRanges,
    FrameSelection,
    keep_frames,
)
from robostream.assemble.spec import (
    ImageTransforms,
    Resize,
    SampleOptions,
    SampleSpec,
    check_transforms,
    window_targets,
)
from robostream.lazy import load_on_first_use

if TYPE_CHECKING:
    from robostream.assemble.cameras import (
        CameraReader,
        find_first_frames,
        find_video_shape,
        find_yuv_cameras,
        probe_cameras,
        warn_of_shape,
    )
    from robostream.assemble.derive import derive_schema
    from robostream.assemble.placement import mixed_batches, place_source
    from robostream.assemble.schema import Affine, Schema, SchemaOptions, SourceFeatures, SourceMap
    from robostream.assemble.source import Source, load_yaml, read_mixture_file
    from robostream.assemble.split import EpisodeSplit, check_no_leakage, split_episodes
    from robostream.assemble.stats import (
        SourceStats,
        affine,
        cached_stats,
        compute_stats,
        exact_stats,
        pool_stats,
    )

__getattr__ = load_on_first_use(
    "robostream.assemble",
    {
        "cameras": "CameraReader find_first_frames find_video_shape find_yuv_cameras probe_cameras "
        "warn_of_shape",
        "derive": "derive_schema",
        "placement": "mixed_batches place_source",
        "schema": "Affine Schema SchemaOptions SourceFeatures SourceMap",
        "source": "Source load_yaml read_mixture_file",
        "split": "EpisodeSplit check_no_leakage split_episodes",
        "stats": "SourceStats affine cached_stats compute_stats exact_stats pool_stats",
    },
)
