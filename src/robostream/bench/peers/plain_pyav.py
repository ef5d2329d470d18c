# SPDX-License-Identifier: Apache-2.0
"""Pictures with PyAV: seek to the key frame before, and decode up to the wanted one."""

from __future__ import annotations

from typing import Any

import av
import numpy as np
import numpy.typing as npt
import torch


class PyavReader:
    """An open container per file."""

    def __init__(self) -> None:
        self._containers: dict[str, Any] = {}

    def read(self, path: str, frames: npt.NDArray[np.int64], fps: float) -> torch.Tensor:
        """Return frames of a file, by their numbers: (frames, 3, height, width) uint8."""
        if path not in self._containers:
            self._containers[path] = av.open(path)
        container = self._containers[path]
        return torch.stack([_picture_at(container, float(frame) / fps) for frame in frames])


def _picture_at(container: Any, time_s: float) -> torch.Tensor:
    stream = container.streams.video[0]
    target = round(time_s / stream.time_base)
    container.seek(target, stream=stream)
    for frame in container.decode(stream):
        if frame.pts >= target:
            return torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1).contiguous()
    raise ValueError(f"no frame at {time_s} s")
