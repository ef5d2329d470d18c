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
from robostream.assemble.pictures import decode_picture
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


def sample_texts(layout: SampleLayout, rows: EpisodeRows, frame: int) -> dict[str, Any]:
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


def draw_stored(
    layout: SampleLayout,
    camera: CameraLayout,
    rows: EpisodeRows,
    frames: list[int],
    out: npt.NDArray[Any],
) -> None:
    """Decode the pictures a camera has in Parquet into (steps, channels, height, width)."""
    for slot, frame in enumerate(frames):
        picture = _stored_picture(layout, camera, rows, frame)
        _check_size(layout, camera, rows.episode, frame, picture, out.shape[1:])
        out[slot] = picture


def read_stored(
    layout: SampleLayout, camera: CameraLayout, rows: EpisodeRows, frames: list[int]
) -> npt.NDArray[Any]:
    """Return the pictures a camera has in Parquet, of whatever size, if all have the same."""
    pictures = [_stored_picture(layout, camera, rows, frame) for frame in frames]
    for frame, picture in zip(frames, pictures, strict=True):
        _check_size(layout, camera, rows.episode, frame, picture, pictures[0].shape)
    return np.stack(pictures)


def _stored_picture(
    layout: SampleLayout, camera: CameraLayout, rows: EpisodeRows, frame: int
) -> npt.NDArray[np.float32]:
    recorded, wanted = camera.recorded_unit, layout.spec.depth_output_unit
    where = f"{layout.dataset.files.url}: {camera.key}, episode {rows.episode}, frame {frame}"
    encoded = rows.object_at(camera.key, frame)
    picture = decode_picture(encoded, where=where, channels=camera.stack[1], size=camera.resize)
    if recorded not in (None, wanted):
        picture = picture * _MM_PER_M if recorded == "m" else picture / _MM_PER_M
    return picture


def _check_size(
    layout: SampleLayout,
    camera: CameraLayout,
    episode: int,
    frame: int,
    picture: npt.NDArray[Any],
    wanted: tuple[int, ...],
) -> None:
    if picture.shape != wanted:
        file = layout.dataset.files.describe(layout.meta.get_data_file_path(episode).as_posix())
        raise DataFileError(
            f"{file}: {camera.key}, episode {episode}, frame {frame}: "
            + size_mismatch((picture.shape[2], picture.shape[1]), (wanted[2], wanted[1]))
        )


def size_mismatch(found: tuple[int, int], others: tuple[int, int]) -> str:
    """Return what is to be said of a picture that cannot lie beside others; (width, height)."""
    return (
        "the picture is {}x{} (width x height), those it is to be put together with are {}x{}. "
        "Pictures of one camera must have one size to be batched: pass resize=(height, width), or "
        "choose episodes of one size."
    ).format(*found, *others)


def finish_depth(
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
