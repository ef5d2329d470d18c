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

from robostream.assemble.download import localise, selected_files
from robostream.assemble.episode import find_pictures, picture_numbers, picture_span
from robostream.assemble.layout import ArrayLayout, CameraLayout, SampleLayout
from robostream.assemble.opened import (
    DatasetLocation,
    OpenedDataset,
    SampleOptions,
    choose_cache,
    open_dataset,
)
from robostream.assemble.pictures import read_picture
from robostream.assemble.row_cache import RowCache, hold_rows
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.assemble.sample import (
    Arrays,
    draw_stored,
    fill_row,
    finish_depth,
    read_stored,
    sample_texts,
    size_mismatch,
)
from robostream.assemble.selection import (
    AbsoluteToRelative,
    EpisodeFilter,
    FrameSelection,
    select_episodes,
)
from robostream.assemble.sizes import (
    find_cameras,
    find_yuv_cameras,
    first_pictures,
    note_shape,
    video_shape,
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
    "draw_stored",
    "fill_row",
    "find_cameras",
    "find_yuv_cameras",
    "find_pictures",
    "first_pictures",
    "finish_depth",
    "localise",
    "make_spec",
    "hold_rows",
    "note_shape",
    "open_dataset",
    "picture_numbers",
    "picture_span",
    "read_picture",
    "read_stored",
    "sample_texts",
    "select_episodes",
    "selected_files",
    "size_mismatch",
    "video_shape",
    "window_targets",
]
