# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and images put together. Imports no torch.

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

# The other stages import these names from here.
from robostream.assemble.batch_layout import (
    BatchLayout,
    SourceLayout,
    mixed_batches,
    place_source,
    plain_batches,
)
from robostream.assemble.cameras import (
    CameraReader,
    find_first_frames,
    find_frames,
    find_video_shape,
    find_yuv_cameras,
    probe_cameras,
    warn_of_shape,
)
from robostream.assemble.columns import check_episode, check_schema, check_times
from robostream.assemble.dataset_stats import compute_stats
from robostream.assemble.derive import derive_schema
from robostream.assemble.images import decode_image
from robostream.assemble.kept_frames import EpisodeWeights, FrameRanges, keep_frames
from robostream.assemble.layout import ArrayLayout, CameraLayout, SampleLayout
from robostream.assemble.mixture_file import load_yaml, read_mixture_file
from robostream.assemble.mixture_stats import (
    Affine,
    SourceStats,
    affine,
    cached_stats,
    exact_stats,
    pool_stats,
)
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
from robostream.assemble.schema import Schema, SchemaOptions, SourceFeatures, SourceMap
from robostream.assemble.selection import AbsoluteToRelative, EpisodeFilter, FrameSelection
from robostream.assemble.source import Source
from robostream.assemble.spec import (
    ImageTransforms,
    Resize,
    SampleOptions,
    SampleSpec,
    check_transforms,
    window_targets,
)
from robostream.assemble.split import EpisodeSplit, check_no_leakage, split_episodes
from robostream.assemble.video_spans import find_byte_span
