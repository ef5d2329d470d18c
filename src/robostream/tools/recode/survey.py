# SPDX-License-Identifier: Apache-2.0
"""Which files of a dataset are encoded anew and which are taken as they are. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from robostream import config
from robostream.errors import VideoFileError
from robostream.meta import LeRobotDatasetMetadata
from robostream.tools.recode.frames import VideoFrames
from robostream.tools.recode.spec import RecodeSpec
from robostream.write import check_encoder


@dataclass(frozen=True, slots=True)
class Video:
    """A video file to be encoded anew."""

    camera: str
    file: str  # relative to the dataset's root
    num_frames: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to do: videos to encode, and files to take as they are (not info.json)."""

    videos: tuple[Video, ...]
    same: tuple[str, ...]

    @property
    def cameras(self) -> list[str]:
        """The cameras whose videos are encoded."""
        return list(dict.fromkeys(video.camera for video in self.videos))


def survey(meta: LeRobotDatasetMetadata, root: Path, spec: RecodeSpec) -> Survey:
    """Return what there is to do for a dataset.

    Raises:
        VideoFileError: A video is missing or damaged.
        ValueError: There is nothing to encode, or a picture cannot be encoded as wanted.
    """
    meta.ensure_readable()
    cameras = [key for key in meta.video_keys if key not in meta.depth_keys]
    if not cameras:
        raise ValueError(
            f"{root}: want a colour camera stored as video, found none (cameras: "
            f"{', '.join(meta.camera_keys) or 'none'}), so there is nothing to encode"
        )
    sizes: dict[tuple[int, int], str] = {}
    videos = [
        _look_at(root, camera, file, sizes)
        for camera in cameras
        for file in _video_files(meta, camera)
    ]
    for (width, height), file in sizes.items():
        _check_size(spec, width, height, file)
    encoded = {video.file for video in videos}
    same = [name for name in _files(root) if name not in encoded | {config.INFO_PATH}]
    return Survey(tuple(videos), tuple(same))


def _video_files(meta: LeRobotDatasetMetadata, camera: str) -> list[str]:
    """Return the files of a camera that the episode table names, in order."""
    columns = [meta.episodes[f"videos/{camera}/{name}_index"] for name in ("chunk", "file")]
    places = np.unique(np.stack(columns, axis=1), axis=0)
    return [meta.info.video_file(camera, chunk, file) for chunk, file in places.tolist()]


def _look_at(root: Path, camera: str, file: str, sizes: dict[tuple[int, int], str]) -> Video:
    """Return a video's record; note the size of its pictures in `sizes`."""
    index = VideoFrames(root / file).index
    if np.any(np.diff(index.pts.astype(np.int64)) <= 0):
        raise VideoFileError(
            f"{root / file}: two frames are shown at the same time, so nobody can tell which one a "
            "row means. Record the file again."
        )
    for setup in index.configs:
        sizes.setdefault((setup.width, setup.height), str(root / file))
    return Video(camera, file, index.num_frames, index.file_bytes)


def _check_size(spec: RecodeSpec, width: int, height: int, file: str) -> None:
    options = spec.encoder(1)
    if width % 2 or height % 2:
        raise ValueError(
            f"{file}: want pictures of even width and height for {options.pix_fmt}, which has one "
            f"colour for 2x2 pixels; found {width}x{height}. Crop or pad them when recording."
        )
    try:
        check_encoder(options, width=width, height=height)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _files(root: Path) -> Iterator[str]:
    """Yield all files below a folder but hidden ones: a recording's, git's, a download's own."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = PurePosixPath(Path(folder).relative_to(root))
        yield from (str(below / name) for name in sorted(names) if not name.startswith("."))
