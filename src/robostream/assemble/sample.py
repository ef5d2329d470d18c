# SPDX-License-Identifier: Apache-2.0
"""Writes one sample into a batch: numbers, pad masks, texts, and images stored in Parquet.

Map-style reading and streaming call the same functions, so their values agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble.columns import parse_tool_calls
from robostream.assemble.images import Pixels, decode_image, write_image
from robostream.assemble.layout import CameraLayout, SampleLayout
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import EpisodeRows
from robostream.assemble.spec import Offsets, window_targets
from robostream.decode import Size, describe_size_mismatch, write_black_yuv
from robostream.errors import DataFileError, MetadataError
from robostream.meta import decode_depth

Arrays = Mapping[str, npt.NDArray[Any]]

_MM_PER_M = np.float32(1000)


def find_targets(
    layout: SampleLayout, frame: int, limits: tuple[int, int]
) -> tuple[dict[str, Offsets], dict[str, npt.NDArray[np.bool_]]]:
    """Return the frames of each window of a sample, and which of them are padding. Pure.

    Args:
        layout: The windows.
        frame: The frame of the sample.
        limits: The frames [first, stop) that windows are clamped to.
    """
    targets, pads = {}, {}
    for offsets, keys in layout.windows:
        frames, is_pad = window_targets(offsets, frame, *limits)
        for key in keys:
            targets[key], pads[key] = frames, is_pad
    return targets, pads


def fill_row(
    layout: SampleLayout,
    arrays: Arrays,
    place: int,
    rows: EpisodeRows,
    frame: int,
    limits: tuple[int, int],
) -> None:
    """Write the numbers and pad masks of one sample to a place of a batch."""
    targets, pads = find_targets(layout, frame, limits)
    for key, is_pad in pads.items():
        arrays[f"{key}_is_pad"][place] = is_pad
    for key, column in rows.numbers.items():
        arrays[key][place] = column[targets.get(key, frame)]


def read_texts(layout: SampleLayout, rows: EpisodeRows, frame: int) -> dict[str, Any]:
    """Return the texts of one sample and its task; raise if the dataset has no such task."""
    meta = layout.meta
    found: dict[str, Any] = {}
    for key in layout.texts:
        if key == "task":
            task_index = int(rows.numbers["task_index"][frame])
            if not 0 <= task_index < len(meta.tasks):
                raise MetadataError(
                    f"{meta.root}/{meta.info.tasks_path}: a frame has task_index "
                    f"{task_index}, but there are only {len(meta.tasks)} tasks. Copy meta/ again."
                )
            found[key] = meta.tasks[task_index]
        else:
            value = rows.object_at(key, frame)
            is_language = meta.features[key]["dtype"] == "language"
            found[key] = parse_tool_calls(value) if is_language else value
    return found


def decode_images_into(
    layout: SampleLayout,
    camera: CameraLayout,
    rows: EpisodeRows,
    frames: list[int],
    out: npt.NDArray[Any],
) -> None:
    """Decode a camera's images from Parquet into (steps, channels, height, width)."""
    dataset, channels = layout.dataset, camera.stack[1]
    for slot, frame in enumerate(frames):
        pixels = decode_stored(dataset, rows, camera.key, frame, channels, camera.resize)
        if pixels.shape != out.shape[1:]:
            path = layout.meta.get_data_file_path(rows.episode).as_posix()
            found, others = (pixels.shape[2], pixels.shape[1]), (out.shape[3], out.shape[2])
            raise DataFileError(
                f"{dataset.files.describe(path)}: {camera.key}, episode {rows.episode}, "
                f"frame {frame}: {describe_size_mismatch(found, others)}"
            )
        _write_image(layout, camera, pixels, out[slot])


def decode_images(
    layout: SampleLayout, camera: CameraLayout, rows: EpisodeRows, frames: list[int]
) -> npt.NDArray[np.float32]:
    """Return a camera's images from Parquet, which must all have the size of the first."""
    channels, size = camera.stack[1], camera.resize
    first = decode_stored(layout.dataset, rows, camera.key, frames[0], channels, size)
    out = np.empty((len(frames), *first.shape), np.float32)
    _write_image(layout, camera, first, out[0])
    decode_images_into(layout, camera, rows, frames[1:], out[1:])
    return out


def decode_stored(
    dataset: OpenedDataset,
    rows: EpisodeRows,
    key: str,
    frame: int,
    channels: int,
    size: Size | None = None,
) -> Pixels:
    """Return one image of a camera from Parquet; see `decode_image`."""
    where = f"{dataset.files.url}: {key}, episode {rows.episode}, frame {frame}"
    return decode_image(rows.object_at(key, frame), where=where, channels=channels, size=size)


def _write_image(
    layout: SampleLayout, camera: CameraLayout, pixels: Pixels, out: npt.NDArray[Any]
) -> None:
    """Write an image as samples hold it, depth in the wanted unit."""
    write_image(pixels, out)
    recorded = camera.recorded_unit
    if recorded not in (None, layout.spec.depth_output_unit):
        (np.multiply if recorded == "m" else np.divide)(out, _MM_PER_M, out=out)


def write_black(out: npt.NDArray[Any], camera: CameraLayout) -> None:
    """Write black images, or distances of 0, for a camera that a dataset does not have."""
    if camera.yuv_size is None:
        out[...] = 0
    else:
        write_black_yuv(out, camera.yuv_size)


def write_depth(
    layout: SampleLayout, camera: CameraLayout, codes: npt.NDArray[Any], out: npt.NDArray[Any]
) -> None:
    """Write the distances that the codes of a depth video stand for."""
    assert camera.coding is not None
    out[:] = decode_depth(codes, camera.coding, layout.spec.depth_output_unit)
