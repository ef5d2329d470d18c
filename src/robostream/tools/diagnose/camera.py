# SPDX-License-Identifier: Apache-2.0
"""The findings about one camera of an episode, and the check of a camera stored as images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import EpisodeRows, OpenedDataset, RowReader, decode_image
from robostream.errors import DataFileError, StorageError
from robostream.meta import image_shape, is_depth
from robostream.tools.diagnose.file import FileCheck, Problem, check_file, explain_unreadable

# A frame counts as black if no value is above this share of the range.
_BLACK_SHARE = 0.02
_COLOURS = ("red", "green", "blue")
_CURE = "Copy or download the file again, or record the episode again."


@dataclass(frozen=True, slots=True)
class Gops:
    """How far apart the key frames of a video file are.

    Attributes:
        count: Number of frames at which decoding can start.
        has_b_frames: Whether frames are stored in another order than shown.
        num_with_leading: GOPs with frames shown before their key frame, as open GOPs have them.
    """

    count: int
    min_frames: int
    median_frames: float
    max_frames: int
    has_b_frames: bool
    num_with_leading: int


@dataclass(frozen=True, slots=True)
class VideoStream:
    """A video file's stream; `pix_fmt` is None if no frame could be decoded."""

    codec: str
    decoder: str
    pix_fmt: str | None
    width: int
    height: int
    num_frames: int
    duration_s: float
    bits_per_s: float
    gops: Gops


@dataclass(frozen=True, slots=True)
class EpisodeSpan:
    """Where an episode lies in a video file, and how well its times match the table's.

    Attributes:
        start_s: When it starts in the file, according to the table.
        stop_s: When it stops, according to the table.
        largest_error_s: The largest deviation of a frame's time from an even frame rate.
        tolerance_s: The largest deviation allowed from the table's times.
        matches: Whether all frames are within `tolerance_s`.
        starts_at_key: Whether its first frame is a key frame.
    """

    first_frame: int
    last_frame: int
    start_s: float
    stop_s: float
    largest_error_s: float
    tolerance_s: float
    matches: bool
    starts_at_key: bool


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """The values of one channel of a frame."""

    name: str
    mean: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class FrameStats:
    """The first frame of an episode."""

    width: int
    height: int
    channels: tuple[ChannelStats, ...]
    is_black: bool


@dataclass(frozen=True, slots=True)
class DecodeRate:
    """How fast the whole episode was decoded, in order, by one thread.

    Attributes:
        images_per_s: Images per second of decoding and conversion, without reading.
        read_s: Seconds it took to read their bytes.
    """

    images: int
    images_per_s: float
    read_s: float
    read_bytes: int


@dataclass(frozen=True, slots=True)
class GpuDecoding:
    """Whether the GPU decodes one video, and why."""

    works: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CameraCheck:
    """The findings about one camera; None for those that could not be made."""

    key: str
    storage: str
    file: FileCheck
    stream: VideoStream | None = None
    span: EpisodeSpan | None = None
    picture: FrameStats | None = None
    rate: DecodeRate | None = None
    gpu: GpuDecoding | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


# Findings by their names in CameraCheck.
Findings = dict[str, Any]


def check_camera(
    key: str, storage: str, file: FileCheck, examine: Callable[[Findings], None]
) -> CameraCheck:
    """Return what `examine` finds, up to the problem that it raises, if any."""
    found: Findings = {}
    try:
        if file.problem is not None:
            raise file.problem
        examine(found)
    except Problem as problem:
        found["problems"] = (problem,)
    return CameraCheck(key, storage, file, **found)


def note_size(frame: FrameStats, entry: dict[str, Any]) -> tuple[str, ...]:
    """Return a note if a frame does not have the size that info.json declares. Pure."""
    _, height, width = image_shape(entry)
    if (frame.width, frame.height) == (width, height):
        return ()
    return (
        f"info.json declares frames of {width}x{height} (width x height), but they are "
        f"{frame.width}x{frame.height}. They are delivered in that size; correct the shape.",
    )


def summarise_frame(values: npt.NDArray[Any], *, depth_name: str | None) -> FrameStats:
    """Return the size and statistics of a frame of shape (channels, height, width). Pure.

    `depth_name` is the name of the only channel of a depth frame, None for other frames.
    """
    names = _COLOURS if len(values) == 3 else tuple(f"channel {i}" for i in range(len(values)))
    names = (depth_name,) if depth_name else names
    channels = tuple(
        ChannelStats(name, float(plane.mean()), float(plane.min()), float(plane.max()))
        for name, plane in zip(names, values, strict=True)
    )
    white = np.iinfo(values.dtype).max if values.dtype.kind in "ui" else 1
    is_black = not depth_name and bool(values.max() <= _BLACK_SHARE * white)
    return FrameStats(values.shape[2], values.shape[1], channels, is_black)


def read_rows(dataset: OpenedDataset, episode: int, keys: list[str], *, cure: str) -> EpisodeRows:
    """Return an episode's rows with the images of `keys`. Raises Problem."""
    reader = RowReader(dataset, dataset.file_opener(), keys)
    try:
        return reader.read(episode)
    except DataFileError as error:
        raise Problem("damaged", str(error), cure) from error
    except StorageError as error:
        raise explain_unreadable(error) from error
    finally:
        reader.close()


def check_images(dataset: OpenedDataset, key: str, episode: int) -> CameraCheck:
    """Return the findings about a camera stored as images in Parquet."""
    entry = dataset.meta.features[key]
    path = dataset.meta.get_data_file_path(episode).as_posix()
    file = check_file(dataset.files, path, want="parquet")

    def examine(found: Findings) -> None:
        began = time.perf_counter()
        rows = read_rows(dataset, episode, [key], cure=_CURE)
        encoded = [rows.object_at(key, frame) or b"" for frame in range(rows.length)]
        read = time.perf_counter()
        channels, _, _ = image_shape(entry)
        for frame, content in enumerate(encoded):
            where = f"{file.path}: {key}, episode {episode}, frame {frame}"
            try:
                values = decode_image(content, where=where, channels=channels)
            except DataFileError as error:
                raise Problem("damaged", str(error), _CURE) from error
            if not frame:
                stats = summarise_frame(values, depth_name="depth" if is_depth(entry) else None)
                found |= {"picture": stats, "notes": note_size(stats, entry)}
        found["rate"] = DecodeRate(
            images=len(encoded),
            images_per_s=len(encoded) / max(time.perf_counter() - read, 1e-9),
            read_s=read - began,
            read_bytes=sum(map(len, encoded)),
        )

    return check_camera(key, "image", file, examine)
