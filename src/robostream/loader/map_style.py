# SPDX-License-Identifier: Apache-2.0
"""`MapReader`: random access to samples by number, within budgets of memory and files."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from robostream import config
from robostream.assemble import (
    CameraLayout,
    EpisodeRows,
    FrameSelection,
    ImageTransforms,
    OpenedDataset,
    RowCache,
    SampleLayout,
    SampleSpec,
    check_transforms,
    compute_stats,
    decode_images,
    fill_row,
    find_video_shape,
    new_row_lru,
    read_texts,
    warn_of_shape,
    window_targets,
    write_depth,
)
from robostream.decode import FrameEngine, TorchcodecBackend
from robostream.errors import DatasetError, ReplacedFileError, SelectionError, call_user, tell_where
from robostream.meta import Stats, forward
from robostream.storage import LruCache

_NOW = np.zeros(1, np.int64)
# Episodes and cameras whose frame numbers are cached.
_CLIPS = 4096

logger = logging.getLogger(__name__)


class MapReader:
    """Serves samples by item number; safe to pickle and to carry over a fork.

    Open files, decoders, frames and rows belong to one process; each process opens its own: a
    forked worker must not share a decoder with its parent.
    """

    _dataset: Final[OpenedDataset] = forward("_layout.dataset", "The dataset.")
    selection: Final[FrameSelection] = forward("_dataset.selection", "The frames behind the items.")
    spec: Final[SampleSpec] = forward("_dataset.spec", "The content of a sample.")
    engine: Final[FrameEngine] = forward("_opened.engine", "The frame engine of this process.")

    def __init__(
        self,
        dataset: OpenedDataset,
        *,
        row_cache_bytes: int,
        frame_cache_bytes: int,
        video_backend: str | None,
    ) -> None:
        self._layout = SampleLayout(dataset)
        self._row_cache_bytes = row_cache_bytes
        self._frame_cache_bytes = frame_cache_bytes
        self._video_backend = _check_backend(video_backend)
        self._open: _OpenReader | None = None
        self._lock = threading.Lock()

    def item(self, number: int) -> dict[str, Any]:
        """Return the sample of an item. Thread-safe: one thread at a time."""
        with self._lock:
            episode, frame = self.selection.locate(number)
            try:
                return self._item(episode, frame)
            except DatasetError as error:
                cause = self.engine.files.explain(error)
                if isinstance(cause, ReplacedFileError):
                    logger.warning("%s", cause)
                    self.close()
                    return self._item(episode, frame)
                tell_where(error, f"while building item {number}: episode {episode}, frame {frame}")
                raise

    def _item(self, episode: int, frame: int) -> dict[str, Any]:
        layout, rows = self._layout, self._rows(episode)
        images = {c.key: self._read_camera(c, rows, frame)[None] for c in layout.cameras}
        arrays = {
            key: images[key] if key in images else np.empty((1, *shape), dtype)
            for key, (shape, dtype) in layout.arrays.items()
        }
        fill_row(layout, arrays, 0, rows, frame, (0, rows.length))
        item: dict[str, Any] = {key: torch.from_numpy(array)[0] for key, array in arrays.items()}
        for camera in layout.cameras:
            if camera.is_transformed:
                assert self.spec.image_transforms is not None
                transform, stack = self.spec.image_transforms, item[camera.key]
                item[camera.key] = call_user("image_transforms", transform, stack)
        return item | read_texts(layout, rows, frame)

    def _read_camera(self, camera: CameraLayout, rows: EpisodeRows, frame: int) -> npt.NDArray[Any]:
        """Return a camera's images of a sample, in their own size."""
        offsets = self.spec.windows.get(camera.key, _NOW)
        frames, _ = window_targets(offsets, frame, 0, rows.length)
        if camera.key not in self.spec.videos:
            stored = decode_images(self._layout, camera, rows, frames.tolist())
            _, channels, height, width = stored.shape
            if camera.resize is None:
                warn_of_shape(self._dataset.meta, camera.key, (channels, height, width))
            return stored.reshape(camera.with_size((channels, height, width)).shape)
        clip = self._clip(rows.episode, camera.key)
        if clip.shape is not None:
            camera = camera.with_size(clip.shape)
        stack = np.empty(camera.stack, camera.dtype)
        pixels = stack if camera.coding is None else np.empty(camera.stack, np.uint16)
        numbers, within = clip.numbers[frames], (int(clip.numbers[0]), int(clip.numbers[-1]) + 1)
        resize = camera.resize is not None
        self.engine.read(clip.file, numbers, pixels, within=within, resize=resize)
        if camera.coding is not None:
            write_depth(self._layout, camera, pixels, stack)
        return stack.reshape(camera.shape)

    def row(self, number: int) -> dict[str, Any]:
        """Return the row of an item alone: tensors and texts, without videos and windows."""
        episode, frame = self.selection.locate(number)
        rows = self._rows(episode)
        numbers = {k: torch.from_numpy(np.array(c[frame])) for k, c in rows.numbers.items()}
        return numbers | {key: rows.object_at(key, frame) for key in rows.objects}

    def columns(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return whole columns over all selected frames: tensors, or lists of texts."""
        parts = [self._rows(int(episode)) for episode in self.selection.episodes]
        result: dict[str, Any] = {}
        for key in keys:
            if key in parts[0].numbers:
                result[key] = torch.from_numpy(np.concatenate([p.numbers[key] for p in parts]))
            else:
                result[key] = [value for p in parts for value in p.objects[key].to_pylist()]
        return result

    def compute_stats(self, *, images: bool) -> Stats:
        """Return the statistics of the selected frames, computed from their rows."""
        return compute_stats(self._dataset, images=images)

    def set_image_transforms(self, image_transforms: ImageTransforms | None) -> None:
        """Replace the transform of each camera of a sample."""
        check_transforms(image_transforms)
        spec = dataclasses.replace(self.spec, image_transforms=image_transforms)
        self._layout = SampleLayout(dataclasses.replace(self._dataset, spec=spec))

    def close(self) -> None:
        """Close the files and decoders of this process; the next access opens them again."""
        if self._open is not None and self._open.process == os.getpid():
            self._open.engine.close()
            self._open.rows.close()
        self._open = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _rows(self, episode: int) -> EpisodeRows:
        return self._opened.rows.get(episode)

    def _clip(self, episode: int, key: str) -> _CameraClip:
        clips, meta = self._opened.clips, self._dataset.meta
        clip = clips.get((episode, key))
        if clip is None:
            file, numbers = self._dataset.find_frames(self.engine.files, episode, key)
            shape = None
            if key not in self.spec.resize:
                shape = find_video_shape(file, int(numbers[0]), meta.features[key])
                warn_of_shape(meta, key, shape)
            clip = clips.put((episode, key), _CameraClip(file.name, numbers, shape))
        return clip

    @property
    def _opened(self) -> _OpenReader:
        if self._open is None or self._open.process != os.getpid():
            dataset = self._dataset
            opener = dataset.file_opener()
            self._open = _OpenReader(
                process=os.getpid(),
                engine=FrameEngine(
                    opener.open,
                    budget_bytes=self._frame_cache_bytes,
                    max_files=config.VIDEO_DECODER_CACHE_SIZE,
                    backend=None if self._video_backend == "pyav" else TorchcodecBackend(),
                    index_folder=dataset.index_folder,
                ),
                rows=RowCache(
                    dataset,
                    opener,
                    self.spec.columns,
                    new_row_lru(self._row_cache_bytes),
                    checks_times=True,
                ),
            )
        return self._open


def _check_backend(name: str | None) -> str:
    if name == "video_reader":
        logger.warning("video_backend='video_reader' is an old name; 'pyav' is used")
        return "pyav"
    if name not in (None, "pyav", "torchcodec"):
        raise SelectionError(f"video_backend must be 'pyav' or 'torchcodec', got {name!r}")
    if name == "torchcodec":
        TorchcodecBackend()  # raises now, not at the first frame, if it is not installed
    return name or "pyav"


class _CameraClip(NamedTuple):
    """The file of a camera's frames of an episode, their numbers in it, and their own shape.

    The shape is None if frames are resized.
    """

    file: str
    numbers: npt.NDArray[np.int64]
    shape: tuple[int, int, int] | None


@dataclass(slots=True)
class _OpenReader:
    """The open files, decoders and rows of one process."""

    process: int
    engine: FrameEngine
    rows: RowCache
    clips: LruCache[tuple[int, str], _CameraClip] = field(default_factory=lambda: LruCache(_CLIPS))
