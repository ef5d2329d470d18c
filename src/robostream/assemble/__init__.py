# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and images put together. Imports no torch.

selection.py    the selected episodes and frames
spec.py         what a sample holds: columns, cameras, windows
video_spans.py  the span of each episode in a camera's video file
opened.py       an opened dataset, from which every reader is made
columns.py      from Arrow columns to checked arrays
shared_rows.py  data files decoded once per machine
rows.py         the rows of an episode, read and cached
images.py       images stored in Parquet
layout.py       how samples lie in a batch
cameras.py      what a camera's files hold: frames, sizes, pixel formats
sample.py       one sample written into a batch
"""

from robostream.assemble.cameras import (
    find_first_frames,
    find_frames,
    find_video_shape,
    find_yuv_cameras,
    probe_cameras,
    warn_of_shape,
)
from robostream.assemble.images import decode_image
from robostream.assemble.layout import ArrayLayout, CameraLayout, SampleLayout
from robostream.assemble.opened import (
    DatasetLocation,
    OpenedDataset,
    choose_cache,
    download_from_hub,
    open_dataset,
)
from robostream.assemble.rows import EpisodeRows, RowCache, RowReader, new_row_lru
from robostream.assemble.sample import (
    Arrays,
    decode_images,
    decode_images_into,
    fill_row,
    read_texts,
    write_depth,
)
from robostream.assemble.selection import (
    AbsoluteToRelative,
    EpisodeFilter,
    FrameSelection,
)
from robostream.assemble.spec import (
    ImageTransforms,
    Offsets,
    Resize,
    SampleOptions,
    SampleSpec,
    check_transforms,
    window_targets,
)
from robostream.assemble.video_spans import find_byte_span, match_frames

__all__ = [
    "AbsoluteToRelative",
    "ArrayLayout",
    "Arrays",
    "CameraLayout",
    "DatasetLocation",
    "EpisodeFilter",
    "EpisodeRows",
    "FrameSelection",
    "ImageTransforms",
    "Offsets",
    "OpenedDataset",
    "Resize",
    "RowCache",
    "RowReader",
    "SampleLayout",
    "SampleOptions",
    "SampleSpec",
    "check_transforms",
    "choose_cache",
    "decode_image",
    "decode_images",
    "decode_images_into",
    "download_from_hub",
    "fill_row",
    "find_byte_span",
    "find_first_frames",
    "find_frames",
    "find_video_shape",
    "find_yuv_cameras",
    "match_frames",
    "new_row_lru",
    "open_dataset",
    "probe_cameras",
    "read_texts",
    "warn_of_shape",
    "window_targets",
    "write_depth",
]
