# SPDX-License-Identifier: Apache-2.0
"""What a camera's value in a frame may be, and its conversion to one form."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.meta import depth_unit, image_shape, is_depth

Pixels = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a value cannot be recorded: what was wanted and what was found."""

    text: str


def without_torch(value: Any) -> Any:
    """Return a tensor as an array, anything else as it is.

    Only a program that has loaded torch can have a tensor, so it is not loaded for the question.
    """
    tensor = getattr(sys.modules.get("torch"), "Tensor", ())
    return value.detach().cpu().numpy() if isinstance(value, tensor) else value


def accept_image(value: Any, entry: Mapping[str, Any], *, unit: str | None) -> Pixels | Fault:
    """Return a fresh uint8 HWC image, or HW depth as uint16 (mm) or float32 (m), or the fault.

    Args:
        value: An array or tensor (HWC or CHW), or a PIL image.
        entry: The camera's feature entry.
        unit: The unit this depth camera records in, once known.
    """
    value = without_torch(value)
    channels, height, width = image_shape(entry)
    if isinstance(value, Image.Image):
        if value.size != (width, height):
            return Fault(f"want a {width}x{height} image, found {value.width}x{value.height}")
        array = np.asarray(value if is_depth(entry) else value.convert("RGB"))
        array = array.reshape(height, width, -1)
    elif isinstance(value, np.ndarray):
        array = value
    else:
        return Fault(f"want an array, a tensor or a PIL image, found {type(value).__name__}")
    hwc = _as_hwc(array, (channels, height, width))
    if hwc is None:
        return Fault(
            f"want shape {(height, width, channels)} or {(channels, height, width)}, "
            f"found {array.shape}"
        )
    return _accept_depth(hwc[..., 0], unit) if is_depth(entry) else _accept_colour(hwc)


def _as_hwc(array: Pixels, shape: tuple[int, int, int]) -> Pixels | None:
    channels, height, width = shape
    if array.shape == (height, width, channels):
        return array
    if array.shape == (channels, height, width):
        return array.transpose(1, 2, 0)
    return None


def _accept_colour(image: Pixels) -> Pixels | Fault:
    if image.dtype == np.uint8:
        return np.array(image, order="C", copy=True)
    if not np.issubdtype(image.dtype, np.floating):
        return Fault(f"want uint8, or floats from 0 to 1, found {image.dtype}")
    low, high = image.min(), image.max()
    if not (low >= 0 and high <= 1):  # also when one of them is NaN
        return Fault(f"want floats from 0 to 1, found {low} to {high}; divide by 255 or use uint8")
    return np.ascontiguousarray(np.rint(image * 255).astype(np.uint8))


def _accept_depth(image: Pixels, unit: str | None) -> Pixels | Fault:
    if image.dtype not in (np.uint16, np.float32):
        return Fault(f"want depth as uint16 (mm) or float32 (m), found {image.dtype}")
    found = depth_unit(image.dtype)
    if unit is not None and found != unit:
        return Fault(f"want depth in {unit} as before, found {image.dtype} ({found})")
    if found == "m" and not np.isfinite(image).all():
        return Fault("want finite distances, found NaN or infinity; store 0 where none is known")
    return np.array(image, order="C", copy=True)
