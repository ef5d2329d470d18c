# SPDX-License-Identifier: Apache-2.0
"""What a sample holds: which columns, cameras and windows, in which units."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.assemble.windows import Offsets, window_offsets
from robostream.decode import Size
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata

ImageTransforms = Callable[[Any], Any]
# (height, width) of all cameras, or by camera.
Resize = Sequence[int] | npt.NDArray[np.integer[Any]] | Mapping[str, Sequence[int]]
DEPTH_UNITS = ("m", "mm")


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """The recipe of a sample; the same for map-style and streaming, so their values agree."""

    columns: tuple[str, ...]
    videos: tuple[str, ...]
    images: tuple[str, ...]
    windows: Mapping[str, Offsets]
    tolerance_s: float
    return_uint8: bool
    depth_output_unit: str
    image_transforms: ImageTransforms | None
    resize: Mapping[str, Size]

    @property
    def cameras(self) -> tuple[str, ...]:
        """All cameras a sample holds."""
        return self.videos + self.images

    @property
    def images_per_sample(self) -> int:
        """The pictures of a sample."""
        return sum(len(self.windows.get(key, (0,))) for key in self.cameras)


def make_spec(
    meta: LeRobotDatasetMetadata,
    *,
    camera_keys: Sequence[str] | None,
    delta_timestamps: Mapping[str, Sequence[float]] | None,
    tolerance_s: float,
    return_uint8: bool,
    depth_output_unit: str,
    image_transforms: ImageTransforms | None,
    resize: Resize | None,
) -> SampleSpec:
    """Return the checked recipe; `camera_keys` of None means all cameras, an empty list none."""
    check_transforms(image_transforms)
    if depth_output_unit not in DEPTH_UNITS:
        raise SelectionError(f"depth_output_unit must be 'm' or 'mm', got {depth_output_unit!r}")
    tolerance_s = arguments.number(tolerance_s, "tolerance_s")
    wanted = _wanted_cameras(meta, camera_keys)
    dropped = set(meta.camera_keys) - set(wanted)
    windows = window_offsets(delta_timestamps, meta.features, fps=meta.fps, tolerance_s=tolerance_s)
    idle = [key for key in windows if key in dropped]
    if idle:
        raise SelectionError(
            f"delta_timestamps asks for {', '.join(idle)}, which camera_keys leaves out"
        )
    _check_pad_names(meta, windows)
    columns = tuple(
        key for key, f in meta.features.items() if f["dtype"] != "video" and key not in dropped
    )
    return SampleSpec(
        columns=columns,
        videos=tuple(key for key in meta.video_keys if key in wanted),
        images=tuple(key for key in meta.image_keys if key in wanted),
        windows=windows,
        tolerance_s=tolerance_s,
        return_uint8=arguments.truth(return_uint8, "return_uint8"),
        depth_output_unit=depth_output_unit,
        image_transforms=image_transforms,
        resize=_sizes(resize, wanted),
    )


def check_transforms(image_transforms: ImageTransforms | None) -> None:
    """Raise TypeError unless the transforms can be called."""
    if image_transforms is not None and not callable(image_transforms):
        raise TypeError(
            f"image_transforms must be callable or None, got {type(image_transforms).__name__}"
        )


def _check_pad_names(meta: LeRobotDatasetMetadata, windows: Mapping[str, Offsets]) -> None:
    """Refuse a window whose mask would take the name of a feature."""
    taken = [f"{key}_is_pad" for key in windows if f"{key}_is_pad" in meta.features]
    if taken:
        raise SelectionError(
            f"{meta.repo_id} has a feature named {', '.join(taken)}, which is also the name of the "
            "mask of a window in delta_timestamps. Leave the window out, or rename the feature in "
            "info.json and in the files of data/."
        )


def _wanted_cameras(
    meta: LeRobotDatasetMetadata, camera_keys: Sequence[str] | None
) -> Sequence[str]:
    if camera_keys is None:
        return meta.camera_keys
    wanted = arguments.names(camera_keys, "camera_keys")
    strangers = [key for key in wanted if key not in meta.camera_keys]
    if strangers:
        raise SelectionError(
            f"camera_keys names {', '.join(strangers)}, but the cameras of {meta.repo_id} are "
            f"{', '.join(meta.camera_keys) or 'none'}"
        )
    return wanted


def _sizes(resize: Resize | None, cameras: Sequence[str]) -> dict[str, Size]:
    """Return the (height, width) of each camera that is resized."""
    if resize is None:
        return {}
    if not isinstance(resize, Mapping):
        size = _size(resize, "resize")
        return dict.fromkeys(cameras, size)
    strangers = [key for key in resize if key not in cameras]
    if strangers:
        raise SelectionError(
            f"resize names {', '.join(map(str, strangers))}, but the cameras of a sample are "
            f"{', '.join(cameras) or 'none'}"
        )
    return {key: _size(size, f"resize of {key}") for key, size in resize.items()}


def _size(size: object, name: str) -> Size:
    sides: list[int] = []
    if isinstance(size, Sequence | np.ndarray):
        with contextlib.suppress(SelectionError):  # said below, with what a size is
            sides = arguments.whole_numbers(size, name)
    if len(sides) == 2 and all(1 <= side <= config.MAX_PICTURE_PX for side in sides):
        return sides[0], sides[1]
    raise SelectionError(
        f"{name} must be (height, width), two whole numbers from 1 to {config.MAX_PICTURE_PX}, or "
        f"such a pair for each camera by name; got {size!r}"
    )
