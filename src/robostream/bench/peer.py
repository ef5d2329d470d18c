# SPDX-License-Identifier: Apache-2.0
"""The peer: a map-style dataset as most are written, with an open PyAV container per file.

For each picture it seeks to the key frame before and decodes up to the wanted one; decoded
neighbours are thrown away.
"""

from __future__ import annotations

from typing import Any

import av
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from robostream.meta import LeRobotDatasetMetadata


class PlainPyavDataset(Dataset[dict[str, Any]]):
    """Pictures of all cameras at some offsets (in frames) from each frame."""

    def __init__(self, root: str, offsets: list[int]) -> None:
        self.meta = LeRobotDatasetMetadata("bench/peer", root=root)
        self.offsets = offsets
        self._containers: dict[str, Any] = {}

    def __len__(self) -> int:
        return self.meta.total_frames

    def __getitem__(self, item: int) -> dict[str, Any]:
        """Return the pictures of one frame."""
        ends = self.meta.episodes["dataset_to_index"]
        episode = int(np.searchsorted(ends, item, side="right"))
        length = int(self.meta.episodes["length"][episode])
        frame = item - int(ends[episode]) + length
        wanted = np.clip(np.array(self.offsets) + frame, 0, length - 1)
        return {key: self._window(episode, key, wanted) for key in self.meta.video_keys}

    def _window(self, episode: int, key: str, frames: npt.NDArray[np.int64]) -> torch.Tensor:
        start_s = float(self.meta.episodes[f"videos/{key}/from_timestamp"][episode])
        path = str(self.meta.root / self.meta.get_video_file_path(episode, key))
        if path not in self._containers:
            self._containers[path] = av.open(path)
        times_s = start_s + frames / self.meta.fps
        pictures = [_picture_at(self._containers[path], float(time_s)) for time_s in times_s]
        return torch.stack(pictures).squeeze(0)


def _picture_at(container: Any, time_s: float) -> torch.Tensor:
    stream = container.streams.video[0]
    target = round(time_s / stream.time_base)
    container.seek(target, stream=stream)
    for frame in container.decode(stream):
        if frame.pts >= target:
            return torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1).contiguous()
    raise ValueError(f"no frame at {time_s} s")
