# SPDX-License-Identifier: Apache-2.0
"""Feature entries of info.json: the columns and cameras of a dataset, and the coding of depth."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.errors import MetadataError

Features = dict[str, dict[str, Any]]
"""The features of a dataset by key, as in info.json: dtype, shape, names, and info of a camera."""

DEFAULT_FEATURES: Features = {
    "timestamp": {"dtype": "float32", "shape": (1,), "names": None},
    "frame_index": {"dtype": "int64", "shape": (1,), "names": None},
    "episode_index": {"dtype": "int64", "shape": (1,), "names": None},
    "index": {"dtype": "int64", "shape": (1,), "names": None},
    "task_index": {"dtype": "int64", "shape": (1,), "names": None},
}
CAMERA_DTYPES = ("image", "video")
LANGUAGE_KEYS = ("language_persistent", "language_events")
_DEPTH_MARKS = ("is_depth_map", "video.is_depth_map")
_COLOURS = ("red", "green", "blue")
_OTHER_DTYPES = ("string", "language", *CAMERA_DTYPES)

_CODING_FIELDS = {
    "video.depth_min": "depth_min_m",
    "video.depth_max": "depth_max_m",
    "video.shift": "shift_m",
    "video.use_log": "use_log",
}
CODE_MAX = 4095
MM_PER_M = 1000.0
_UINT16_MAX = 65535
_MOST_M = 1_000_000

Codes = npt.NDArray[np.uint16]
Depth = npt.NDArray[np.uint16] | npt.NDArray[np.float32]


def validate_features(features: Mapping[str, Any], where: str) -> Features:
    """Return a checked copy of `features` with shapes as tuples, or raise MetadataError."""
    if not isinstance(features, Mapping):
        raise MetadataError(f"{where}: want features as objects by name, got {features!r:.200}")
    checked: Features = {}
    for name, entry in features.items():
        if fault := _find_fault(name, entry):
            raise MetadataError(f"{where}: {fault}")
        checked[name] = copy.deepcopy(dict(entry))
        checked[name]["shape"] = tuple(int(size) for size in entry["shape"])
        checked[name].setdefault("names", None)
    return checked


def check_default_features(features: Features, where: str) -> None:
    """Raise MetadataError unless all DEFAULT_FEATURES are there, in dtypes that hold them."""
    missing = [key for key in DEFAULT_FEATURES if key not in features]
    if missing:
        raise MetadataError(
            f"{where}: the features {', '.join(missing)} are missing; every dataset has "
            f"{', '.join(DEFAULT_FEATURES)}"
        )
    for key, usual in DEFAULT_FEATURES.items():
        dtype, kinds = features[key]["dtype"], "f" if key == "timestamp" else "iu"
        found = np.dtype(dtype) if _is_numeric(dtype) else None
        if found is None or found.kind not in kinds or found.itemsize < 4:
            raise MetadataError(
                f"{where}: feature {key!r} has dtype {dtype!r}; want {usual['dtype']!r}, or "
                f"another {'float' if kinds == 'f' else 'integer'} of 32 bits or more"
            )


def keys_of_dtype(features: Mapping[str, Mapping[str, Any]], dtypes: Iterable[str]) -> list[str]:
    """Return the feature names whose dtype is one of `dtypes`, in declaration order. Pure."""
    wanted = set(dtypes)
    return [name for name, entry in features.items() if entry["dtype"] in wanted]


def is_depth(entry: Mapping[str, Any]) -> bool:
    """Return whether a camera feature is marked as depth, in any place LeRobot has used."""
    info = entry.get("info") or {}
    legacy = entry.get("video_info") or {}
    return any(info.get(mark) for mark in _DEPTH_MARKS) or bool(legacy.get(_DEPTH_MARKS[1]))


def image_shape(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return (channels, height, width) of a camera feature, declared HWC or CHW. Pure."""
    first, second, third = entry["shape"]
    names = entry.get("names")
    if isinstance(names, list | tuple) and len(names) == 3:
        channels_first = names[0] in ("channel", "channels")
    else:
        channels_first = first in (1, 3) and third not in (1, 3)
    return (first, second, third) if channels_first else (third, first, second)


def dimension_names(entry: Mapping[str, Any], count: int) -> list[str]:
    """Return names of the `count` entries of the last axis: recorded ones or numbers. Pure."""
    # Of a camera they are colours; the name of an only entry is empty.
    if entry["dtype"] in CAMERA_DTYPES and count == len(_COLOURS):
        return list(_COLOURS)
    names = entry.get("names") or ()
    if isinstance(names, Mapping):  # {"motors": ["shoulder", ...]}, or {"shoulder": 0, ...}
        lists = [part for part in names.values() if _is_list(part)]
        names = [name for part in lists for name in part] if lists else list(names)
    if entry["dtype"] not in CAMERA_DTYPES and _is_list(names) and len(names) == count:
        return [str(name) for name in names]
    return [""] if count == 1 else [str(number) for number in range(count)]


def decoded_bytes(entry: Mapping[str, Any], shape: tuple[int, ...] | None = None) -> int:
    """Return the bytes of a decoded frame; its `shape` (CHW) may differ from the declared. Pure."""
    channels, height, width = shape or image_shape(entry)
    if entry["dtype"] == "image":
        return channels * height * width
    if is_depth(entry):
        return 2 * height * width
    if height % 2:
        return 3 * height * width  # RGB
    return height * width + (width + 1) // 2 * height  # planar YUV 4:2:0


def resized(entry: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return a camera feature with images of another (height, width). Pure."""
    channels, _, _ = image_shape(entry)
    if image_shape(entry) == entry["shape"]:
        shape, names = (channels, *size), ["channels", "height", "width"]
    else:
        shape, names = (*size, channels), ["height", "width", "channels"]
    return {**entry, "shape": shape, "names": names}


def _find_fault(name: object, entry: Any) -> str | None:
    """Return what is wrong with the entry of a feature, or None."""
    if not isinstance(name, str):
        return f"the name of a feature must be a text; got {name!r}"
    if "/" in name:
        return (
            f"feature name {name!r} contains '/', which separates nested names in the episode "
            f"table. Rename it, for example to {name.replace('/', '.')!r}."
        )
    if not isinstance(entry, Mapping) or "dtype" not in entry or "shape" not in entry:
        return f"feature {name!r} must be an object with 'dtype' and 'shape', got {entry!r}"
    if fault := _find_wrong_shape(entry["dtype"], entry["shape"]):
        return f"feature {name!r} has {fault}"
    if entry["dtype"] not in CAMERA_DTYPES:
        return None
    if len(entry["shape"]) != 3:
        return (
            f"camera {name!r} has shape {entry['shape']!r}; want three numbers, such as "
            "[height, width, channels]"
        )
    fault = _find_wrong_info(entry)
    return fault and f"camera {name!r}: {fault}"


def _find_wrong_shape(dtype: Any, shape: Any) -> str | None:
    if dtype not in _OTHER_DTYPES and not _is_numeric(dtype):
        return (
            f"dtype {dtype!r}; want a numpy dtype name such as 'float32', or one of "
            f"{', '.join(_OTHER_DTYPES)}"
        )
    is_list = isinstance(shape, list | tuple)
    if not is_list or not all(arguments.is_whole(size) and size > 0 for size in shape):
        return f"shape {shape!r}; want a list of whole numbers above 0"
    is_camera = dtype in CAMERA_DTYPES
    most = config.MOST_PIXEL_NUMBERS if is_camera else config.MOST_FEATURE_NUMBERS
    if math.prod(shape) > most:
        return (
            f"shape {shape!r:.200}, which is {math.prod(shape):,} numbers for each frame; want at "
            f"most {most:,} for dtype {dtype!r}"
        )
    return f"{len(shape)} axes; the format stores at most 5" if len(shape) > 5 else None


def _find_wrong_info(entry: Mapping[str, Any]) -> str | None:
    for block in ("info", "video_info"):
        fields = entry.get(block) or {}
        if not isinstance(fields, Mapping):
            return (
                f"want an object as {block!r}, got {fields!r:.200}. Without one the camera is read "
                "as colour."
            )
        for mark in _DEPTH_MARKS:
            if fields.get(mark) not in (None, True, False):
                return f"want true or false as {mark!r}, got {fields[mark]!r:.200}"
    if not is_depth(entry):
        return None
    info = entry.get("info") or {}
    if info.get("depth_unit") not in (None, "m", "mm"):
        return f'want "m" or "mm" as \'depth_unit\', got {info["depth_unit"]!r:.200}'
    try:
        if entry["dtype"] == "video":
            DepthCoding.from_info(info)
    except ValueError as error:
        return (
            f"'info' records no depth coding: {error}. Write there what the video was encoded with."
        )
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_numeric(dtype: Any) -> bool:
    if not isinstance(dtype, str):
        return False
    try:
        return np.dtype(dtype).kind in "biuf"
    except TypeError:
        return False


@dataclass(frozen=True, slots=True)
class DepthCoding:
    """The scale of codes 0 to 4095: linear, or logarithmic, which is finer nearby.

    Attributes:
        depth_min_m: The distance of code 0; nearer ones are clipped to it.
        depth_max_m: The distance of code 4095; farther ones are clipped to it.
        shift_m: Added before the logarithm.
        use_log: Whether the scale is logarithmic.
    """

    depth_min_m: float = config.DEPTH_MIN_M
    depth_max_m: float = config.DEPTH_MAX_M
    shift_m: float = config.DEPTH_SHIFT_M
    use_log: bool = True

    def __post_init__(self) -> None:
        for name in ("depth_min_m", "depth_max_m", "shift_m"):
            value = getattr(self, name)
            if not arguments.is_number(value) or not abs(value) <= _MOST_M:
                raise ValueError(f"want at most {_MOST_M:,} metres as {name}, got {value!r:.200}")
        if self.use_log not in (True, False):
            raise ValueError(f"want true or false as use_log, got {self.use_log!r:.200}")
        if not self.depth_min_m < self.depth_max_m:
            raise ValueError(
                f"want depth_min_m < depth_max_m, got {self.depth_min_m} and {self.depth_max_m}"
            )
        if self.use_log and self.depth_min_m + self.shift_m <= 0:
            raise ValueError(
                "a logarithmic depth scale wants depth_min_m + shift_m above 0, got "
                f"{self.depth_min_m} + {self.shift_m}"
            )

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> DepthCoding:
        """Return the coding that a camera's `info` block records; missing fields have defaults."""
        return cls(**{name: info[key] for key, name in _CODING_FIELDS.items() if key in info})

    def to_info(self) -> dict[str, Any]:
        """Return the fields that record this coding in the `info` block."""
        return {key: getattr(self, name) for key, name in _CODING_FIELDS.items()}


def depth_unit(dtype: npt.DTypeLike) -> str:
    """Return the unit of a depth array: "m" for floats, "mm" for integers. Pure."""
    return "m" if np.issubdtype(np.dtype(dtype), np.floating) else "mm"


def encode_depth(depth: Depth, coding: DepthCoding) -> Codes:
    """Return the codes of distances given in metres (float32) or millimetres (uint16). Pure."""
    if depth.dtype == np.uint16:
        return _codes_of_mm(coding)[depth]
    return _encode(depth.astype(np.float32, copy=False), coding, scale=1.0)


def decode_depth(codes: Codes, coding: DepthCoding, unit: str) -> npt.NDArray[np.float32]:
    """Return distances in `unit`: "m", or "mm" rounded to whole millimetres. Pure."""
    return _distances(coding, unit)[codes]


# A table of all codes, or of all distances in millimetres, is small, and a lookup is ten times
# faster than a logarithm per pixel.
@functools.lru_cache(maxsize=16)
def _codes_of_mm(coding: DepthCoding) -> Codes:
    every_mm = np.arange(_UINT16_MAX + 1, dtype=np.float32)
    return _encode(every_mm, coding, scale=MM_PER_M)


@functools.lru_cache(maxsize=16)
def _distances(coding: DepthCoding, unit: str) -> npt.NDArray[np.float32]:
    if unit not in ("m", "mm"):
        raise ValueError(f'the unit of depth is "m" or "mm", got {unit!r}')
    codes = np.arange(CODE_MAX + 1, dtype=np.float32)
    metres = _decode(codes, coding)
    if unit == "m":
        return metres
    rounded: npt.NDArray[np.float32] = np.rint(metres * np.float32(MM_PER_M))
    return rounded.clip(0, _UINT16_MAX)


# Both directions compute in float32, step by step as LeRobot does, so that the codes agree.
def _encode(depth: npt.NDArray[np.float32], coding: DepthCoding, *, scale: float) -> Codes:
    low = np.float32(coding.depth_min_m * scale)
    high = np.float32(coding.depth_max_m * scale)
    shift = np.float32(coding.shift_m * scale)
    if coding.use_log:
        log_low, log_high = math.log(float(low + shift)), math.log(float(high + shift))
        # A distance below -shift has no logarithm; it is clipped like any other.
        share = (np.log(np.maximum(depth, low) + shift) - log_low) / (log_high - log_low)
    else:
        share = ((depth - low) / (high - low)).astype(np.float32, copy=False)
    return np.rint(share * CODE_MAX).clip(0, CODE_MAX).astype(np.uint16)


def _decode(codes: npt.NDArray[np.float32], coding: DepthCoding) -> npt.NDArray[np.float32]:
    low, high, shift = coding.depth_min_m, coding.depth_max_m, coding.shift_m
    if coding.use_log:
        log_low, log_high = math.log(low + shift), math.log(high + shift)
        step = np.float32((log_high - log_low) / CODE_MAX)
        # LeRobot decodes with torch's float32 exponential. numpy's differs in the last bit, which
        # moves two of the 4096 codes by a millimetre. Only depth needs torch here.
        import torch

        shifted = torch.from_numpy(codes * step + np.float32(log_low)).exp().numpy()
        metres = shifted - np.float32(shift)
    else:
        metres = codes * np.float32((high - low) / CODE_MAX) + np.float32(low)
    return metres.clip(np.float32(low), np.float32(high)).astype(np.float32, copy=False)
