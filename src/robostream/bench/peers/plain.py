# SPDX-License-Identifier: Apache-2.0
"""A map-style dataset as most are written: for each sample its pictures, looked up in the files.

Files stay open; decoded neighbours are thrown away. Pictures only, no rows.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from robostream.meta import LeRobotDatasetMetadata


class Reader(Protocol):
    """Reads pictures of a video file, and keeps it open."""

    def read(self, path: str, frames: npt.NDArray[np.int64], fps: float) -> torch.Tensor:
        """Return frames of a file, by their numbers: (frames, 3, height, width) uint8."""


class PlainDataset(Dataset[dict[str, Any]]):
    """Pictures of all cameras at some offsets (in frames) from each frame."""

    def __init__(self, root: str, offsets: list[int], reader: Reader) -> None:
        self.meta = LeRobotDatasetMetadata("bench/peer", root=root)
        self.offsets = offsets
        self._reader = reader

    def __len__(self) -> int:
        return self.meta.total_frames

    def __getitem__(self, item: int) -> dict[str, Any]:
        """Return the pictures of one frame."""
        ends = self.meta.episodes["dataset_to_index"]
        episode = int(np.searchsorted(ends, item, side="right"))
        length = int(self.meta.episodes["length"][episode])
        frame = item - int(ends[episode]) + length
        wanted = np.clip(np.array(self.offsets) + frame, 0, length - 1)
        pictures = {key: self._window(episode, key, wanted) for key in self.meta.video_keys}
        return {"index": item, **pictures}

    def _window(self, episode: int, key: str, frames: npt.NDArray[np.int64]) -> torch.Tensor:
        start_s = float(self.meta.episodes[f"videos/{key}/from_timestamp"][episode])
        path = str(self.meta.root / self.meta.get_video_file_path(episode, key))
        numbers = frames + round(start_s * self.meta.fps)
        return self._reader.read(path, numbers, self.meta.fps).squeeze(0)
