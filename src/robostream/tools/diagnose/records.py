# SPDX-License-Identifier: Apache-2.0
"""The records of what is found out about a camera of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.meta import image_shape
from robostream.tools.diagnose.file import FileCheck, Problem
from robostream.tools.diagnose.gpu import GpuDecoding

# A picture looks black if no value is above this share of the range.
_BLACK_SHARE = 0.02
_COLOURS = ("red", "green", "blue")


@dataclass(frozen=True, slots=True)
class Gops:
    """How far apart the key frames of a video file are.

    Attributes:
        count: At how many frames decoding can start.
        min_frames: Frames of the shortest GOP.
        median_frames: Frames of the usual one.
        max_frames: Frames of the longest one.
        has_b_frames: Whether frames are stored in another order than shown.
        num_with_leading: GOPs with pictures shown before their key frame, as open GOPs have them.
    """

    count: int
    min_frames: int
    median_frames: float
    max_frames: int
    has_b_frames: bool
    num_with_leading: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A video file's stream; `pix_fmt` is None if no picture of it could be decoded."""

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
class Span:
    """Where an episode lies in a video file, and how well the times fit the table's.

    Attributes:
        first_frame: Number of its first frame in the file.
        last_frame: Number of its last one.
        start_s: When it starts in the file, by the table.
        stop_s: When it stops, by the table.
        largest_error_s: How far a frame's time is, at most, from its time at an even frame rate.
        tolerance_s: How far a frame's time may be from the table's.
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
class Channel:
    """The values of one channel of a picture."""

    name: str
    mean: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Picture:
    """The first picture of an episode."""

    width: int
    height: int
    channels: tuple[Channel, ...]
    is_black: bool


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast the whole episode was decoded, in order, by one thread.

    Attributes:
        images: Pictures decoded.
        images_per_s: Pictures per second of decoding and conversion.
        read_s: Seconds it took to read their bytes, which `images_per_s` leaves out.
        read_bytes: How many bytes they are.
    """

    images: int
    images_per_s: float
    read_s: float
    read_bytes: int


@dataclass(frozen=True, slots=True)
class CameraCheck:
    """Everything that was found out about one camera; None for what could not be found out."""

    key: str
    storage: str
    file: FileCheck
    stream: Stream | None = None
    span: Span | None = None
    picture: Picture | None = None
    rate: Rate | None = None
    gpu: GpuDecoding | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def note_size(picture: Picture, entry: dict[str, Any]) -> tuple[str, ...]:
    """Return a note if a picture does not have the size that info.json declares. Pure."""
    _, height, width = image_shape(entry)
    if (picture.width, picture.height) == (width, height):
        return ()
    return (
        f"info.json declares pictures of {width}x{height} (width x height), but they are "
        f"{picture.width}x{picture.height}. They are delivered in that size; correct the shape.",
    )


def summarise_picture(values: npt.NDArray[Any], *, depth_name: str | None) -> Picture:
    """Return the size and the values of a picture of shape (channels, height, width). Pure.

    Args:
        values: The picture.
        depth_name: What its one channel is called if it is a depth picture, else None.
    """
    names = _COLOURS if len(values) == 3 else tuple(f"channel {i}" for i in range(len(values)))
    names = (depth_name,) if depth_name else names
    channels = tuple(
        Channel(name, float(plane.mean()), float(plane.min()), float(plane.max()))
        for name, plane in zip(names, values, strict=True)
    )
    white = np.iinfo(values.dtype).max if values.dtype.kind in "ui" else 1
    is_black = not depth_name and bool(values.max() <= _BLACK_SHARE * white)
    return Picture(values.shape[2], values.shape[1], channels, is_black)
