# SPDX-License-Identifier: Apache-2.0
"""What a camera's files hold: frame numbers, sizes, pixel formats, and single images.

info.json may declare another size, so the first frames decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from robostream.assemble.layout import BatchLayout, ProbedCamera
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import RowReader
from robostream.assemble.sample import Pixels, decode_stored
from robostream.decode import (
    PLANAR_8BIT,
    FrameEngine,
    FrameLayout,
    PyavBackend,
    VideoFile,
    VideoFiles,
    plan_runs,
)
from robostream.errors import ChangedFileError, DatasetError
from robostream.meta import DepthCoding, LeRobotDatasetMetadata, decode_depth, image_shape, is_depth
from robostream.storage import FileOpener

logger = logging.getLogger(__name__)

T = TypeVar("T")
Shape = tuple[int, int, int]
# The first episode that can be read decides; so many are tried.
_TRIES = 3
_OPEN_VIDEOS = 8
_warned: set[tuple[str, str]] = set()


class CameraReader:
    """Reads images of cameras; of a video, decodes only the wanted frames and what they depend on.

    For one thread. It reads byte ranges of remote files and downloads no whole file.
    """

    def __init__(self, dataset: OpenedDataset, opener: FileOpener | None = None) -> None:
        self._dataset = dataset
        self._opener = opener or dataset.file_opener()
        self._engine = FrameEngine(
            self._opener.open,
            budget_bytes=0,
            max_files=_OPEN_VIDEOS,
            index_folder=dataset.index_folder,
        )
        self._rows: dict[str, RowReader] = {}

    def __enter__(self) -> CameraReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()
        for reader in self._rows.values():
            reader.close()

    def read(self, key: str, episode: int, frames: Sequence[int]) -> list[Pixels]:
        """Return (channels, height, width) of frames, ascending, of a camera's episode.

        Colours are uint8, depth is in its recorded unit.
        """
        entry = self._dataset.meta.info.features[key]
        if entry["dtype"] == "image":
            if key not in self._rows:
                self._rows[key] = RowReader(self._dataset, self._opener, [key])
            rows, (channels, _, _) = self._rows[key].read(episode), image_shape(entry)
            return [decode_stored(self._dataset, rows, key, frame, channels) for frame in frames]
        file, numbers = self._dataset.find_frames(self._engine.files, episode, key)
        shape = find_video_shape(file, int(numbers[0]), entry)
        out = np.empty((len(frames), *shape), np.uint16 if is_depth(entry) else np.uint8)
        self._engine.read(file.name, numbers[np.asarray(frames, np.int64)], out)
        if is_depth(entry):
            info = entry.get("info") or {}
            out = decode_depth(out, DepthCoding.from_info(info), info.get("depth_unit") or "m")
        return list(out)


def probe_cameras(dataset: OpenedDataset) -> dict[str, ProbedCamera]:
    """Return what the files of the first readable episode say of each camera.

    A camera without a readable file among the first episodes is left out: reading its frames will
    raise the error.
    """
    spec, opener = dataset.spec, dataset.file_opener()
    files = _open_videos(dataset, opener)

    def probe(key: str, episode: int) -> ProbedCamera:
        if key not in spec.videos:
            with CameraReader(dataset, opener) as reader:
                channels, height, width = reader.read(key, episode, [0])[0].shape
            return ProbedCamera((channels, height, width))
        file, numbers = dataset.find_frames(files, episode, key)
        shape = find_video_shape(file, int(numbers[0]), dataset.meta.info.features[key])
        return ProbedCamera(shape, int(file.index.gop_lengths().max()), file.index.has_long_gops)

    probed: dict[str, ProbedCamera] = {}
    for key in spec.cameras:
        camera = _read_first(dataset, f"the size of {key}", partial(probe, key))
        if camera is not None:
            probed[key] = camera
            if key not in spec.resize:
                warn_of_shape(dataset.meta, key, camera.shape)
    return probed


def find_yuv_cameras(layout: BatchLayout) -> list[str]:
    """Return the cameras whose frames a batch can hold as 8-bit YUV 4:2:0.

    The first readable frame of a camera in each dataset decides. The user's transform needs RGB.
    """
    found = []
    for number, camera in enumerate(layout.cameras):
        if camera.key not in layout.videos or camera.stack[2] % 2 or camera.is_transformed:
            continue
        if all(_is_yuv(source.dataset, own.key) for source, own in layout.owners(number)):
            found.append(camera.key)
    return found


def find_first_frames(layout: BatchLayout) -> Iterator[tuple[str, VideoFile, int]]:
    """Yield (camera, file, frame number) of each dataset's first frame of each YUV camera."""
    for number, camera in enumerate(layout.cameras):
        for source, own in layout.owners(number) if camera.is_yuv else ():
            dataset = source.dataset
            files = _open_videos(dataset)
            episode = int(dataset.selection.episodes[0])
            file, numbers = dataset.find_frames(files, episode, own.key)
            yield camera.key, file, int(numbers[0])


def find_video_shape(file: VideoFile, number: int, entry: dict[str, Any]) -> Shape:
    """Return (channels, height, width) of a frame of a video file.

    The frame is decoded only if the sample description of the file differs from info.json.
    """
    _, height, width = image_shape(entry)
    config = file.index.config_of(number)
    if (config.width, config.height) != (width, height):
        width, height = config.width, config.height
        layout = _decoded_layout(file, number)
        if layout is not None:
            width, height = layout.width, layout.height
    return 1 if is_depth(entry) else 3, height, width


def warn_of_shape(meta: LeRobotDatasetMetadata, key: str, shape: Shape) -> None:
    """Warn once for each camera if its images are not of the declared size."""
    _, height, width = image_shape(meta.info.features[key])
    camera = str(meta.root), key
    if shape[1:] == (height, width) or camera in _warned:
        return
    _warned.add(camera)
    logger.warning(
        "%s: info.json declares the images of %s as %dx%d (width x height), but there are some "
        "of %dx%d. They are delivered in their own size; correct the shape in info.json.",
        *(*camera, width, height, shape[2], shape[1]),
    )


def _open_videos(dataset: OpenedDataset, opener: FileOpener | None = None) -> VideoFiles:
    return VideoFiles(
        (opener or dataset.file_opener()).open,
        max_files=1,
        index_folder=dataset.index_folder,
        looked_since_s=dataset.opened_at_s,
    )


def _read_first(dataset: OpenedDataset, what: str, read: Callable[[int], T | None]) -> T | None:
    """Return what `read` finds in the first of some episodes that can be read; None without one.

    Logs errors of files, which their readers will raise. A changed file raises here: readers open
    it anew and would not notice.
    """
    for episode in dataset.selection.episodes[:_TRIES].tolist():
        try:
            found = read(episode)
        except ChangedFileError:
            raise
        except (DatasetError, OSError) as error:
            logger.info("%s is not found in episode %d: %s", what, episode, error)
        else:
            if found is not None:
                return found
    return None


def _decoded_layout(file: VideoFile, number: int) -> FrameLayout | None:
    run = plan_runs(file.index, [number])[0]
    decoded = PyavBackend().decode([(file, run)])
    layouts = [frame.layout for _, _, frame in decoded if frame is not None]
    return layouts[-1] if layouts else None


def _is_yuv(dataset: OpenedDataset, key: str) -> bool:
    """Return whether the first readable frame of a camera is 8-bit YUV 4:2:0."""
    files = _open_videos(dataset)

    def pixel_format(episode: int) -> str | None:
        file, numbers = dataset.find_frames(files, episode, key)
        layout = _decoded_layout(file, int(numbers[0]))
        return None if layout is None else layout.kind

    if key not in dataset.spec.videos:
        return False
    return _read_first(dataset, f"the format of {key}", pixel_format) in PLANAR_8BIT
