# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and pictures put together. Imports no torch.

opened.py      an opened dataset: what everything that reads samples is made from
spec.py        what a sample holds
selection.py   which episodes and frames
windows.py     which neighbouring frames a sample takes
layout.py      how samples lie in a batch
rows.py        rows of an episode, from Parquet
shared_rows.py data files decoded once per machine
row_cache.py          rows of the episodes at hand
columns.py     from Arrow columns to arrays
pictures.py    pictures stored in Parquet
plain_png.py   the usual kind of them, decoded faster
episode.py     where an episode's pictures lie in the video files
times.py       whether the times in a table are those of its frames
sizes.py       how large a camera's pictures are
sample.py      one sample written to its place
download.py    the files of chosen episodes; downloading those of a Hub dataset
"""

from robostream.assemble.download import download_from_hub, selected_files
from robostream.assemble.episode import find_byte_span, find_frames, match_frames
from robostream.assemble.layout import ArrayLayout, CameraLayout, SampleLayout
from robostream.assemble.opened import (
    DatasetLocation,
    OpenedDataset,
    SampleOptions,
    choose_cache,
    open_dataset,
)
from robostream.assemble.pictures import decode_image
from robostream.assemble.row_cache import RowCache, new_row_lru
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.assemble.sample import (
    Arrays,
    decode_images,
    decode_images_into,
    describe_size_mismatch,
    fill_row,
    read_texts,
    write_depth,
)
from robostream.assemble.selection import (
    AbsoluteToRelative,
    EpisodeFilter,
    FrameSelection,
    select_episodes,
)
from robostream.assemble.sizes import (
    find_first_frames,
    find_video_shape,
    find_yuv_cameras,
    probe_cameras,
    warn_of_shape,
)
from robostream.assemble.spec import (
    ImageTransforms,
    Resize,
    SampleSpec,
    check_transforms,
    make_spec,
)
from robostream.assemble.times import check_times
from robostream.assemble.windows import Offsets, window_targets

__all__ = [
    "AbsoluteToRelative",
    "DatasetLocation",
    "ArrayLayout",
    "Arrays",
    "CameraLayout",
    "SampleOptions",
    "EpisodeFilter",
    "EpisodeRows",
    "FrameSelection",
    "ImageTransforms",
    "Offsets",
    "OpenedDataset",
    "Resize",
    "RowReader",
    "RowCache",
    "SampleLayout",
    "SampleSpec",
    "check_times",
    "check_transforms",
    "choose_cache",
    "decode_images_into",
    "fill_row",
    "probe_cameras",
    "find_yuv_cameras",
    "find_frames",
    "find_first_frames",
    "write_depth",
    "download_from_hub",
    "make_spec",
    "new_row_lru",
    "warn_of_shape",
    "open_dataset",
    "match_frames",
    "find_byte_span",
    "decode_image",
    "decode_images",
    "read_texts",
    "select_episodes",
    "selected_files",
    "describe_size_mismatch",
    "find_video_shape",
    "window_targets",
]
