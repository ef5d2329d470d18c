# SPDX-License-Identifier: Apache-2.0
"""What a camera's pictures are: found in the files, since info.json may say something else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from robostream.assemble.episode import find_frames
from robostream.assemble.layout import ProbedCamera, SampleLayout
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.pictures import decode_image
from robostream.assemble.rows import RowReader
from robostream.decode import (
    PLANAR_8BIT,
    FileRun,
    FrameLayout,
    PyavBackend,
    VideoFile,
    VideoFiles,
    plan_runs,
)
from robostream.errors import ChangedFileError, DatasetError
from robostream.meta import LeRobotDatasetMetadata, image_shape, is_depth
from robostream.storage import FileOpener

logger = logging.getLogger(__name__)

Shape = tuple[int, int, int]
# How many episodes are looked at for one that can be read.
_TRIES = 3
_said: set[tuple[str, str]] = set()


def probe_cameras(dataset: OpenedDataset) -> dict[str, ProbedCamera]:
    """Return what the files say of each camera.

    They are those of the first selected episode that can be read. A camera for which none of the
    first few can be is left out; whoever reads its pictures will say what is wrong.
    """
    spec = dataset.spec
    door = dataset.file_opener()
    files = _open_files(dataset, door)
    first = _first_episodes(dataset)
    found: dict[str, ProbedCamera] = {}
    for key in spec.cameras:
        for episode in first:
            with _left_to_readers(f"the size of {key}", episode):
                if key in spec.videos:
                    found[key] = _find_video(dataset, files, episode, key)
                else:
                    found[key] = ProbedCamera(_stored_shape(dataset, door, episode, key))
                break
    for key, camera in found.items():
        if key not in spec.resize:
            warn_of_shape(dataset.meta, key, camera.shape)
    return found


def find_yuv_cameras(layout: SampleLayout) -> list[str]:
    """Return the cameras whose pictures can travel as 8-bit 4:2:0.

    The first picture of a camera that can be read decides. Pictures that the user's transform
    applies to cannot travel so.
    """
    dataset = layout.dataset
    files = _open_files(dataset, dataset.file_opener())
    first = _first_episodes(dataset)
    found = []
    for camera in layout.cameras:
        is_even = camera.stack[2] % 2 == 0
        if camera.key in layout.spec.videos and is_even and not camera.is_transformed:
            kinds = (_video_kind(dataset, files, episode, camera.key) for episode in first)
            if next(filter(None, kinds), None) in PLANAR_8BIT:
                found.append(camera.key)
    return found


def find_first_frames(layout: SampleLayout) -> Iterator[tuple[str, VideoFile, int]]:
    """Yield (camera, file, frame number) of the first picture of each camera with parcels."""
    dataset = layout.dataset
    files = _open_files(dataset, dataset.file_opener())
    for camera in layout.cameras:
        if camera.is_yuv:
            file, numbers = find_frames(dataset, files, _first_episodes(dataset)[0], camera.key)
            yield camera.key, file, int(numbers[0])


def find_video_shape(file: VideoFile, number: int, entry: dict[str, Any]) -> Shape:
    """Return (channels, height, width) of a frame of a video file.

    Where the file's table agrees with info.json that is it; otherwise the frame itself is asked.
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
    """Say that a camera's pictures are not of the declared size; once for each camera."""
    _, height, width = image_shape(meta.info.features[key])
    camera = str(meta.root), key
    if shape[1:] == (height, width) or camera in _said:
        return
    _said.add(camera)
    logger.warning(
        "%s: info.json declares the pictures of %s as %dx%d (width x height), but there are some "
        "of %dx%d. They are delivered in their own size; correct the shape in info.json.",
        *(*camera, width, height, shape[2], shape[1]),
    )


def _open_files(dataset: OpenedDataset, door: FileOpener) -> VideoFiles:
    return VideoFiles(
        door.open,
        max_files=1,
        index_folder=dataset.index_folder,
        looked_since_s=dataset.opened_at_s,
    )


def _first_episodes(dataset: OpenedDataset) -> list[int]:
    return [int(episode) for episode in dataset.selection.episodes[:_TRIES]]


def _decoded_layout(file: VideoFile, number: int) -> FrameLayout | None:
    run = plan_runs(file.index, [number])[0]
    decoded = PyavBackend().decode([FileRun(file.source, file.index, run)])
    layouts = [picture.layout for _, _, picture in decoded if picture is not None]
    return layouts[-1] if layouts else None


def _video_kind(dataset: OpenedDataset, files: VideoFiles, episode: int, key: str) -> str | None:
    """Return how the first picture of an episode is kept; None if it cannot be read."""
    layout = None
    with _left_to_readers(f"the format of {key}", episode):
        file, numbers = find_frames(dataset, files, episode, key)
        layout = _decoded_layout(file, int(numbers[0]))
    return None if layout is None else layout.kind


@contextmanager
def _left_to_readers(what: str, episode: int) -> Iterator[None]:
    """Leave what is wrong with a file to those who read it.

    But not that it changed: they open it anew, and would never know.
    """
    try:
        yield
    except ChangedFileError:
        raise
    except (DatasetError, OSError) as error:
        logger.info("%s is not found in episode %d: %s", what, episode, error)


def _find_video(dataset: OpenedDataset, files: VideoFiles, episode: int, key: str) -> ProbedCamera:
    file, numbers = find_frames(dataset, files, episode, key)
    shape = find_video_shape(file, int(numbers[0]), dataset.meta.info.features[key])
    return ProbedCamera(shape, int(file.index.gop_lengths().max()), file.index.has_long_gops)


def _stored_shape(dataset: OpenedDataset, door: FileOpener, episode: int, key: str) -> Shape:
    reader = RowReader(dataset, door, [key])
    try:
        encoded = reader.read(episode).object_at(key, 0)
    finally:
        reader.close()
    channels, _, _ = image_shape(dataset.meta.info.features[key])
    where = f"{dataset.files.url}: {key}, episode {episode}, frame 0"
    _, height, width = decode_image(encoded, where=where, channels=channels).shape
    return channels, height, width
