# SPDX-License-Identifier: Apache-2.0
"""Checks a frame given to the writer. Of a frame with faults nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream.errors import FrameError
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, Features
from robostream.write.camera_input import Fault, accept_image, without_torch
from robostream.write.language_rows import accept_rows
from robostream.write.text_input import text_fault

TASK = "task"


@dataclass(frozen=True, slots=True)
class CheckedFrame:
    """One frame as it will be stored; its arrays are copies, so the caller may reuse its own."""

    task: str
    values: dict[str, Any]


def check_frame(
    frame: Mapping[str, Any], features: Features, *, depth_units: Mapping[str, str], where: str
) -> CheckedFrame:
    """Return the frame ready to store, or raise FrameError that lists every fault.

    Args:
        frame: A value for each feature that is not one of the default ones, and the task.
        features: All features of the dataset.
        depth_units: The unit of each depth camera whose unit is known.
        where: Names the frame in the error.
    """
    wanted = {name: entry for name, entry in features.items() if name not in DEFAULT_FEATURES}
    faults = _key_faults(frame, wanted)
    values: dict[str, Any] = {}
    for name, entry in wanted.items():
        if name not in frame and entry["dtype"] != "language":
            continue
        value = _accept(name, entry, frame.get(name), depth_units.get(name))
        if isinstance(value, Fault):
            faults.append(f"{name}: {value.text}")
        else:
            values[name] = value
    if faults:
        listed = "".join(f"\n  - {fault}" for fault in faults)
        raise FrameError(f"{where} cannot be recorded:{listed}\nNothing of it was kept.")
    return CheckedFrame(task=frame[TASK], values=values)


def _key_faults(frame: Mapping[str, Any], wanted: Features) -> list[str]:
    faults = [
        f"{name}: missing; want {_describe(entry)}"
        for name, entry in wanted.items()
        if name not in frame and entry["dtype"] != "language"
    ]
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


def _accept(name: str, entry: Mapping[str, Any], value: Any, unit: str | None) -> Any:
    dtype = entry["dtype"]
    if dtype in CAMERA_DTYPES:
        return accept_image(value, entry, unit=unit)
    if dtype == "language":
        return accept_rows(name, value)
    if dtype == "string":
        fault = text_fault(value)
        return value if fault is None else Fault(fault)
    value = without_torch(value)
    if not isinstance(value, np.ndarray):
        found = f"{type(value).__name__} {value!r}"
        return Fault(f"want a numpy array or tensor, {_describe(entry)}, found {found:.200}")
    if value.dtype != np.dtype(dtype) or value.shape != entry["shape"]:
        return Fault(f"want {_describe(entry)}, found {value.dtype} of shape {value.shape}")
    return value.copy()


def _describe(entry: Mapping[str, Any]) -> str:
    return f"{entry['dtype']} of shape {tuple(entry['shape'])}"
