# SPDX-License-Identifier: Apache-2.0
"""Delta windows: which neighbouring frames a sample takes, and which of them are padding. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from robostream import arguments
from robostream.errors import SelectionError
from robostream.meta import Features

Offsets = npt.NDArray[np.int64]


def window_offsets(
    delta_timestamps: Mapping[str, Sequence[float]] | None,
    features: Features,
    *,
    fps: float,
    tolerance_s: float,
) -> dict[str, Offsets]:
    """Return the frame offsets of each key, or raise SelectionError naming every bad delta."""
    windows: dict[str, Offsets] = {}
    faults: list[str] = []
    by_name = "lists of seconds by name of a feature (a dict)"
    arguments.of_kind(delta_timestamps, "delta_timestamps", Mapping | None, by_name)
    for key, given in (delta_timestamps or {}).items():
        if key not in features:
            raise SelectionError(
                f"delta_timestamps asks for {key!r}, which the dataset does not have. Its features "
                f"are {', '.join(features)}"
            )
        if features[key]["dtype"] in ("string", "language"):
            raise SelectionError(f"delta_timestamps asks for {key!r}, but texts have no windows")
        deltas = arguments.numbers(given, f"delta_timestamps[{key!r}]")
        if not deltas:
            raise SelectionError(f"delta_timestamps[{key!r}] is empty; leave the key out instead")
        places = np.array(deltas) * fps
        offsets = np.rint(places)
        with np.errstate(invalid="ignore"):
            off = ~(np.abs(places - offsets) / fps <= tolerance_s)  # what is no number is off, too
        faults += [f"{key}: {deltas[i]!r} s" for i in range(len(off)) if off[i]]
        windows[key] = np.where(off, 0, offsets).astype(np.int64)
    if faults:
        raise SelectionError(
            f"these deltas are no multiples of 1/fps = {1 / fps:.6g} s within tolerance_s = "
            f"{tolerance_s}: {'; '.join(faults)}. Round them to whole frames."
        )
    return windows


def window_targets(
    offsets: Offsets, frame: int | Offsets, length: int | Offsets
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """Return the frames a window takes and which are padding (clamped to the episode's ends).

    `frame` and `length` may be columns of shape (n, 1), for n windows at once.
    """
    targets = offsets + frame
    is_pad = (targets < 0) | (targets >= length)
    return np.clip(targets, 0, np.asarray(length) - 1), is_pad
