# SPDX-License-Identifier: Apache-2.0
"""Samples written in place: one code path for map-style items and streamed batches.

A batch holds what collating map-style items would give, written straight to where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robostream.assemble.columns import language_value
from robostream.assemble.episode import Episode
from robostream.assemble.pictures import decode_picture
from robostream.assemble.spec import SampleSpec
from robostream.assemble.windows import Offsets, window_targets
from robostream.decode import FrameEngine
from robostream.errors import MetadataError
from robostream.meta import (
    DepthCoding,
    LeRobotDatasetMetadata,
    decode_depth,
    image_shape,
    is_depth,
)

Allocate = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]

_MM_PER_M = np.float32(1000)


class BatchWriter:
    """Fills the places of one batch; different places may be filled by different threads."""

    def __init__(
        self, size: int, meta: LeRobotDatasetMetadata, spec: SampleSpec, *, allocate: Allocate
    ) -> None:
        self._meta = meta
        self._spec = spec
        layout = array_layout(meta, spec)
        self._arrays = {
            key: allocate((size, *shape), dtype) for key, (shape, dtype) in layout.items()
        }
        texts = [k for k in spec.columns if meta.features[k]["dtype"] in ("string", "language")]
        self._objects: dict[str, list[Any]] = {k: [None] * size for k in [*texts, "task"]}
        # The shape of what a transform returns is not known before, so it is stacked at the end.
        self._transformed: dict[str, list[Any]] = {
            key: [None] * size for key in spec.cameras if is_transformed(key, meta, spec)
        }

    def fill(
        self, place: int, episode: Episode, frame: int, engine: FrameEngine, *, position: int
    ) -> None:
        """Write the sample of one frame; `position` is when, on the clock of the frame engine."""
        rows = episode.rows
        targets: dict[str, Offsets] = {}
        for key, offsets in self._spec.windows.items():
            targets[key], is_pad = window_targets(offsets, frame, episode.length)
            self._arrays[f"{key}_is_pad"][place] = is_pad
        for key, column in rows.numbers.items():
            self._arrays[key][place] = column[targets.get(key, frame)]
        for key in self._spec.cameras:
            self._fill_camera(
                place, key, episode, targets.get(key, np.array([frame])), engine, position
            )
        for key, cells in self._objects.items():
            cells[place] = self._text(key, episode, frame)

    def result(self) -> dict[str, Any]:
        """Return the batch: tensors with one row per sample, and lists of texts."""
        batch: dict[str, Any] = {key: torch.from_numpy(a) for key, a in self._arrays.items()}
        batch |= {key: torch.stack(cells) for key, cells in self._transformed.items()}
        return batch | self._objects

    def item(self) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        batch: dict[str, Any] = {key: torch.from_numpy(a)[0] for key, a in self._arrays.items()}
        cells = self._transformed | self._objects
        return batch | {key: values[0] for key, values in cells.items()}

    def _fill_camera(
        self,
        place: int,
        key: str,
        episode: Episode,
        at: Offsets,
        engine: FrameEngine,
        position: int,
    ) -> None:
        shape, dtype = camera_layout(key, self._meta, self._spec)
        transformed = key in self._transformed
        out = np.empty(shape, dtype) if transformed else self._arrays[key][place]
        stack = out.reshape(len(at), *shape[-3:])
        if key in episode.spans:
            self._read_video(stack, key, episode, at, engine, position)
        else:
            for slot, frame in enumerate(at.tolist()):
                stack[slot] = self._picture(key, episode, frame)
        if transformed:
            assert self._spec.image_transforms is not None
            self._transformed[key][place] = self._spec.image_transforms(torch.from_numpy(out))

    def _read_video(
        self,
        stack: npt.NDArray[Any],
        key: str,
        episode: Episode,
        at: Offsets,
        engine: FrameEngine,
        position: int,
    ) -> None:
        span = episode.spans[key]
        entry = self._meta.features[key]
        if not is_depth(entry):
            engine.read(span.file, span.numbers[at], stack, position=position, within=span.within)
            return
        codes = np.empty(stack.shape, np.uint16)
        engine.read(span.file, span.numbers[at], codes, position=position, within=span.within)
        coding = DepthCoding.from_info(entry.get("info") or {})
        stack[:] = decode_depth(codes, coding, self._spec.depth_output_unit)

    def _picture(self, key: str, episode: Episode, frame: int) -> npt.NDArray[np.float32]:
        where = f"{self._meta.location.url}: {key}, episode {episode.rows.episode}, frame {frame}"
        picture = decode_picture(episode.rows.object_at(key, frame), where=where)
        entry = self._meta.features[key]
        recorded = (entry.get("info") or {}).get("depth_unit") if is_depth(entry) else None
        if recorded in (None, self._spec.depth_output_unit):
            return picture
        return picture * _MM_PER_M if recorded == "m" else picture / _MM_PER_M

    def _text(self, key: str, episode: Episode, frame: int) -> Any:
        if key == "task":
            return task_text(self._meta, int(episode.rows.numbers["task_index"][frame]))
        value = episode.rows.object_at(key, frame)
        return language_value(value) if self._meta.features[key]["dtype"] == "language" else value


Layout = tuple[tuple[int, ...], npt.DTypeLike]


def array_layout(meta: LeRobotDatasetMetadata, spec: SampleSpec) -> dict[str, Layout]:
    """Return shape and dtype of each array of a sample. Pure."""
    layout: dict[str, Layout] = {}
    for key in spec.columns:
        entry = meta.features[key]
        if entry["dtype"] in ("string", "language", "image"):
            continue
        inner = () if entry["shape"] == (1,) else entry["shape"]
        window = (len(spec.windows[key]),) if key in spec.windows else ()
        kind = np.dtype(entry["dtype"]).kind
        dtype = {"b": np.bool_, "f": np.float32}.get(kind, np.int64)
        layout[key] = ((*window, *inner), dtype)
    for key in spec.cameras:
        if not is_transformed(key, meta, spec):
            layout[key] = camera_layout(key, meta, spec)
    pads = {f"{key}_is_pad": ((len(o),), np.bool_) for key, o in spec.windows.items()}
    return layout | pads


def camera_layout(key: str, meta: LeRobotDatasetMetadata, spec: SampleSpec) -> Layout:
    """Return shape and dtype of a camera in a sample, before any transform. Pure.

    A window of one frame keeps its axis for pictures in Parquet and loses it for videos.
    """
    entry = meta.features[key]
    steps = len(spec.windows.get(key, ()))
    bare = steps == 0 or (steps == 1 and key in spec.videos)
    shape: tuple[int, ...] = image_shape(entry) if bare else (steps, *image_shape(entry))
    bytes_wanted = key in spec.videos and spec.return_uint8 and not is_depth(entry)
    return shape, np.uint8 if bytes_wanted else np.float32


def is_transformed(key: str, meta: LeRobotDatasetMetadata, spec: SampleSpec) -> bool:
    """Return whether the user's transform applies to a camera: to all but depth. Pure."""
    return spec.image_transforms is not None and not is_depth(meta.features[key])


def task_text(meta: LeRobotDatasetMetadata, task_index: int) -> str:
    """Return the text of a task, or raise MetadataError if tasks.parquet has no such row."""
    if not 0 <= task_index < len(meta.tasks):
        raise MetadataError(
            f"{meta.meta_location.describe('meta/tasks.parquet')}: a frame has task_index "
            f"{task_index}, but there are only {len(meta.tasks)} tasks. Copy meta/ again."
        )
    return meta.tasks[task_index]
