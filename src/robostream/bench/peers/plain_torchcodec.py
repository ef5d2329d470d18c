# SPDX-License-Identifier: Apache-2.0
"""Pictures with torchcodec."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class TorchcodecReader:
    """An open decoder per file."""

    def __init__(self) -> None:
        self._decoders: dict[str, Any] = {}

    def read(self, path: str, frames: npt.NDArray[np.int64], fps: float) -> torch.Tensor:
        """Return frames of a file, by their numbers: (frames, 3, height, width) uint8."""
        from torchcodec.decoders import VideoDecoder  # an optional package

        del fps  # frames are asked for by number
        if path not in self._decoders:
            self._decoders[path] = VideoDecoder(path, seek_mode="approximate")
        pictures: torch.Tensor = self._decoders[path].get_frames_at(indices=frames.tolist()).data
        return pictures
