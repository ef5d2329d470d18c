# SPDX-License-Identifier: Apache-2.0
"""Depth as 12-bit codes: how a depth video stores distances."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config

CODE_MAX = 4095
MM_PER_M = 1000.0
_UINT16_MAX = 65535
_MOST_M = 1_000_000

Codes = npt.NDArray[np.uint16]
Depth = npt.NDArray[np.uint16] | npt.NDArray[np.float32]


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
        default = cls()
        return cls(
            depth_min_m=info.get("video.depth_min", default.depth_min_m),
            depth_max_m=info.get("video.depth_max", default.depth_max_m),
            shift_m=info.get("video.shift", default.shift_m),
            use_log=info.get("video.use_log", default.use_log),
        )

    def to_info(self) -> dict[str, Any]:
        """Return the fields that record this coding in the `info` block."""
        return {
            "video.depth_min": self.depth_min_m,
            "video.depth_max": self.depth_max_m,
            "video.shift": self.shift_m,
            "video.use_log": self.use_log,
        }


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
        metres = _exp(codes * step + np.float32(log_low)) - np.float32(shift)
    else:
        metres = codes * np.float32((high - low) / CODE_MAX) + np.float32(low)
    return metres.clip(np.float32(low), np.float32(high)).astype(np.float32, copy=False)


def _exp(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    # LeRobot decodes with torch's float32 exponential. numpy's differs in the last bit, which moves
    # two of the 4096 codes by a millimetre. Only depth needs torch here.
    import torch

    result: npt.NDArray[np.float32] = torch.from_numpy(values).exp().numpy()
    return result
