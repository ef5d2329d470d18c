# SPDX-License-Identifier: Apache-2.0
"""One sample written to its place: rows, masks, texts, and pictures stored in Parquet.

Map-style items and streamed batches are written by the same functions, so their values agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble.columns import language_value
from robostream.assemble.layout import CameraLayout, SampleLayout
from robostream.assemble.pictures import Pixels, decode_image, write_image
from robostream.assemble.rows import EpisodeRows
from robostream.assemble.windows import Offsets, window_targets
from robostream.errors import DataFileError, MetadataError
from robostream.meta import LeRobotDatasetMetadata, decode_depth

Arrays = Mapping[str, npt.NDArray[Any]]

_MM_PER_M = np.float32(1000)


def fill_row(
    layout: SampleLayout, arrays: Arrays, place: int, rows: EpisodeRows, frame: int
) -> None:
    """Write the numbers and pad masks of one sample to a place of a batch."""
    targets: dict[str, Offsets] = {}
    for offsets, keys in layout.windows:
        frames, is_pad = window_targets(offsets, frame, rows.length)
        for key in keys:
            targets[key] = frames
            arrays[f"{key}_is_pad"][place] = is_pad
    for key, column in rows.numbers.items():
        arrays[key][place] = column[targets.get(key, frame)]


def read_texts(layout: SampleLayout, rows: EpisodeRows, frame: int) -> dict[str, Any]:
    """Return the texts of one sample, its task among them."""
    meta = layout.meta
    found: dict[str, Any] = {}
    for key in layout.texts:
        if key == "task":
            found[key] = task_text(meta, int(rows.numbers["task_index"][frame]))
        else:
            value = rows.object_at(key, frame)
            is_language = meta.features[key]["dtype"] == "language"
            found[key] = language_value(value) if is_language else value
    return found


def decode_images_into(
    layout: SampleLayout,
    camera: CameraLayout,
    rows: EpisodeRows,
    frames: list[int],
    out: npt.NDArray[Any],
) -> None:
    """Decode the pictures a camera has in Parquet into (steps, channels, height, width)."""
    for slot, frame in enumerate(frames):
        pixels = _stored_pixels(layout, camera, rows, frame)
        _check_size(layout, camera, rows.episode, frame, pixels, out.shape[1:])
        _write_stored(layout, camera, pixels, out[slot])


def decode_images(
    layout: SampleLayout, camera: CameraLayout, rows: EpisodeRows, frames: list[int]
) -> npt.NDArray[np.float32]:
    """Return the pictures a camera has in Parquet, of whatever size, if all have the same."""
    first = _stored_pixels(layout, camera, rows, frames[0])
    out = np.empty((len(frames), *first.shape), np.float32)
    _write_stored(layout, camera, first, out[0])
    decode_images_into(layout, camera, rows, frames[1:], out[1:])
    return out


def _stored_pixels(
    layout: SampleLayout, camera: CameraLayout, rows: EpisodeRows, frame: int
) -> Pixels:
    where = f"{layout.dataset.files.url}: {camera.key}, episode {rows.episode}, frame {frame}"
    encoded = rows.object_at(camera.key, frame)
    return decode_image(encoded, where=where, channels=camera.stack[1], size=camera.resize)


def _write_stored(
    layout: SampleLayout, camera: CameraLayout, pixels: Pixels, out: npt.NDArray[Any]
) -> None:
    write_image(pixels, out)
    recorded = camera.recorded_unit
    if recorded not in (None, layout.spec.depth_output_unit):
        (np.multiply if recorded == "m" else np.divide)(out, _MM_PER_M, out=out)


def _check_size(
    layout: SampleLayout,
    camera: CameraLayout,
    episode: int,
    frame: int,
    pixels: Pixels,
    wanted: tuple[int, ...],
) -> None:
    if pixels.shape != wanted:
        file = layout.dataset.files.describe(layout.meta.get_data_file_path(episode).as_posix())
        raise DataFileError(
            f"{file}: {camera.key}, episode {episode}, frame {frame}: "
            + describe_size_mismatch((pixels.shape[2], pixels.shape[1]), (wanted[2], wanted[1]))
        )


def describe_size_mismatch(found: tuple[int, int], others: tuple[int, int]) -> str:
    """Return what is to be said of a picture that cannot lie beside others; (width, height)."""
    return (
        "the picture is {}x{} (width x height), those it is to be put together with are {}x{}. "
        "Pictures of one camera must have one size to be batched: pass resize=(height, width), or "
        "choose episodes of one size."
    ).format(*found, *others)


def write_depth(
    layout: SampleLayout, camera: CameraLayout, codes: npt.NDArray[Any], out: npt.NDArray[Any]
) -> None:
    """Turn the codes of a depth video into distances."""
    assert camera.coding is not None
    out[:] = decode_depth(codes, camera.coding, layout.spec.depth_output_unit)


def task_text(meta: LeRobotDatasetMetadata, task_index: int) -> str:
    """Return the text of a task, or raise MetadataError if tasks.parquet has no such row."""
    if not 0 <= task_index < len(meta.tasks):
        raise MetadataError(
            f"{meta.root}/{config.TASKS_PATH}: a frame has task_index "
            f"{task_index}, but there are only {len(meta.tasks)} tasks. Copy meta/ again."
        )
    return meta.tasks[task_index]
