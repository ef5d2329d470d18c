# SPDX-License-Identifier: Apache-2.0
"""Checks the features of a new dataset, and the frames given to add_frame().

`check_frame` also converts a frame's values to the form that is stored.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.errors import FrameError, MetadataError
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    Features,
    depth_unit,
    image_shape,
    is_depth,
    validate_features,
)

TASK = "task"
_CAMERA_STYLES = ("vqa", "trace")  # language rows of these styles refer to one camera
_TEXT_FIELDS = ("role", "content", "style", "camera")

Pixels = npt.NDArray[Any]


class ValueFault(ValueError):
    """A value cannot be recorded; the message says what was wanted and what was found."""


@dataclass(frozen=True, slots=True)
class CheckedFrame:
    """One frame as it will be stored; its arrays are copies, so the caller may reuse its own."""

    task: str
    values: dict[str, Any]


def features_to_record(features: Mapping[str, Any], *, use_videos: bool) -> Features:
    """Return the features of a new dataset, the default ones last, or raise MetadataError."""
    checked = validate_features(features, "create") | copy.deepcopy(DEFAULT_FEATURES)
    found = {name: _feature_fault(name, entry) for name, entry in checked.items()}
    faults = [f"{name}: {fault}" for name, fault in found.items() if fault]
    videos = [name for name, entry in checked.items() if entry["dtype"] == "video"]
    if videos and not use_videos:
        faults.append(f"{', '.join(videos)}: videos, though use_videos is False; want dtype image")
    if faults:
        raise MetadataError(f"these features cannot be recorded:{_listed(faults)}")
    for entry in checked.values():
        # A camera with one channel records depth, which readers detect only by this mark.
        if entry["dtype"] in CAMERA_DTYPES and image_shape(entry)[0] == 1 and not is_depth(entry):
            entry["info"] = {**(entry.get("info") or {}), "is_depth_map": True}
    return checked


def check_frame(
    frame: Mapping[str, Any], features: Features, *, depth_units: Mapping[str, str], where: str
) -> CheckedFrame:
    """Return the frame ready to store, or raise a FrameError that lists every fault.

    It holds the task, and a value for each feature that is not a default feature. `depth_units` has
    the unit of each depth camera whose unit is known; `where` names the frame in the error.
    """
    wanted = {name: entry for name, entry in features.items() if name not in DEFAULT_FEATURES}
    faults = _key_faults(frame, wanted)
    values: dict[str, Any] = {}
    for name, entry in wanted.items():
        if name not in frame and entry["dtype"] != "language":
            faults.append(f"{name}: missing; want {_describe(entry)}")
            continue
        try:
            values[name] = _convert(name, entry, frame.get(name), depth_units.get(name))
        except ValueFault as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise FrameError(f"{where} cannot be recorded:{_listed(faults)}\nThe frame was not added.")
    return CheckedFrame(task=frame[TASK], values=values)


def language_fields(name: str) -> list[str]:
    """Return the fields of a row of a language column; only persistent rows carry a time."""
    timed = ["timestamp"] if name == "language_persistent" else []
    return ["role", "content", "style", *timed, "camera", "tool_calls"]


def text_fault(value: Any) -> str | None:
    """Return why the value cannot be stored as UTF-8 text, or None if it can. Pure."""
    if not isinstance(value, str):
        return f"want a text, found {value!r:.200}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        start = max(0, error.start - 20)
        return (
            f"want a text that UTF-8 can store, found {value[error.start]!r} at character "
            f"{error.start} of {value[start : error.end + 20]!r}; decode the original bytes with "
            'the right encoding, or with errors="replace"'
        )
    return None


def _listed(faults: Sequence[str]) -> str:
    return "".join(f"\n  - {fault}" for fault in faults)


def _feature_fault(name: str, entry: Mapping[str, Any]) -> str | None:
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype in CAMERA_DTYPES:
        channels, _, _ = image_shape(entry)
        if channels == 1 or (channels == 3 and not is_depth(entry)):
            return None
        return f"a camera has 3 channels, a depth camera 1; found {channels} in {shape}"
    if dtype == "language" and name not in LANGUAGE_KEYS:
        return f"language columns are called {' and '.join(LANGUAGE_KEYS)}"
    if dtype in ("string", "language"):
        return None if shape == (1,) else f"{dtype} wants shape (1,), found {shape}"
    return None if shape else "want at least one axis; a single number has shape (1,)"


def _key_faults(frame: Mapping[str, Any], wanted: Features) -> list[str]:
    faults = []
    if TASK not in frame:
        faults.append("task: missing; want a text that says what the robot is doing")
    elif fault := text_fault(frame[TASK]):
        faults.append(f"task: {fault}")
    for name in frame:
        if name in DEFAULT_FEATURES:
            faults.append(f"{name}: filled in by the writer; leave it out of the frame")
        elif name not in wanted and name != TASK:
            faults.append(f"{name}: no such feature; the dataset has {', '.join(wanted)}")
    return faults


def _convert(name: str, entry: Mapping[str, Any], value: Any, unit: str | None) -> Any:
    dtype = entry["dtype"]
    # Only a program that has imported torch can pass a tensor, so this does not import it.
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", ())
    if isinstance(value, tensor):
        value = value.detach().cpu().numpy()
    if dtype in CAMERA_DTYPES:
        return _convert_image(value, entry, unit)
    if dtype == "language":
        return _convert_language_rows(value, language_fields(name))
    if dtype == "string":
        if fault := text_fault(value):
            raise ValueFault(fault)
        return value
    if not isinstance(value, np.ndarray):
        found = f"{type(value).__name__} {value!r}"
        raise ValueFault(f"want a numpy array or tensor, {_describe(entry)}, found {found:.200}")
    if value.dtype != np.dtype(dtype) or value.shape != entry["shape"]:
        raise ValueFault(f"want {_describe(entry)}, found {value.dtype} of shape {value.shape}")
    return value.copy()


def _describe(entry: Mapping[str, Any]) -> str:
    return f"{entry['dtype']} of shape {tuple(entry['shape'])}"


def _convert_image(value: Any, entry: Mapping[str, Any], unit: str | None) -> Pixels:
    """Return a new uint8 HWC image, or HW depth as uint16 (mm) or float32 (m)."""
    channels, height, width = image_shape(entry)
    if isinstance(value, Image.Image):
        if value.size != (width, height):
            raise ValueFault(f"want a {width}x{height} image, found {value.width}x{value.height}")
        value = np.asarray(value if is_depth(entry) else value.convert("RGB"))
        value = value.reshape(height, width, -1)
    if not isinstance(value, np.ndarray):
        raise ValueFault(f"want an array, a tensor or a PIL image, found {type(value).__name__}")
    hwc, chw = (height, width, channels), (channels, height, width)
    if value.shape not in (hwc, chw):
        raise ValueFault(f"want shape {hwc} or {chw}, found {value.shape}")
    image = value if value.shape == hwc else value.transpose(1, 2, 0)
    return _convert_depth(image[..., 0], unit) if is_depth(entry) else _convert_colour(image)


def _convert_colour(image: Pixels) -> Pixels:
    if image.dtype == np.uint8:
        return np.array(image, order="C", copy=True)
    if not np.issubdtype(image.dtype, np.floating):
        raise ValueFault(f"want uint8, or floats from 0 to 1, found {image.dtype}")
    low, high = image.min(), image.max()
    if not (low >= 0 and high <= 1):  # also true if either is NaN
        raise ValueFault(
            f"want floats from 0 to 1, found {low} to {high}; divide by 255 or use uint8"
        )
    return np.ascontiguousarray(np.rint(image * 255).astype(np.uint8))


def _convert_depth(image: Pixels, unit: str | None) -> Pixels:
    if image.dtype not in (np.uint16, np.float32):
        raise ValueFault(f"want depth as uint16 (mm) or float32 (m), found {image.dtype}")
    found = depth_unit(image.dtype)
    if unit is not None and found != unit:
        raise ValueFault(f"want depth in {unit} as before, found {image.dtype} ({found})")
    if found == "m" and not np.isfinite(image).all():
        raise ValueFault(
            "want finite distances, found NaN or infinity; store 0 for unknown distances"
        )
    return np.array(image, order="C", copy=True)


def _convert_language_rows(value: Any, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows with every field present and each tool call as a JSON text."""
    if value is None:
        return []
    if not isinstance(value, Sequence) or not all(isinstance(row, Mapping) for row in value):
        raise ValueFault(f"want a list of rows (dicts), found {value!r}")
    for row in value:
        if fault := _language_fault(row, fields):
            raise ValueFault(f"{fault}; the row is {dict(row)!r}")
    rows = [{field: row.get(field) for field in fields} for row in value]
    for row in rows:
        if (calls := row["tool_calls"]) is not None:
            row["tool_calls"] = [json.dumps(call, separators=(",", ":")) for call in calls]
    return rows


def _language_fault(row: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    if unknown := [key for key in row if key not in fields]:
        return f"want the fields {', '.join(fields)}, found {', '.join(map(repr, unknown))} too"
    if not isinstance(row.get("role"), str):
        return "want a role (a text)"
    for field in _TEXT_FIELDS:
        if row.get(field) is not None and (fault := text_fault(row[field])):
            return f"{field}: {fault}"
    if "timestamp" in fields and not isinstance(row.get("timestamp"), int | float):
        return "want a timestamp in seconds"
    if (row.get("style") in _CAMERA_STYLES) != bool(row.get("camera")):
        return f"want a camera for the styles {', '.join(_CAMERA_STYLES)} and for no other"
    calls = row.get("tool_calls")
    if not isinstance(calls, list | tuple | None):
        return "want a list of tool_calls, or None"
    try:
        fault = text_fault(json.dumps(calls, ensure_ascii=False))
    except (TypeError, ValueError) as error:
        return f"want tool_calls that JSON can store, but {error}"
    return f"tool_calls: {fault}" if fault else None
