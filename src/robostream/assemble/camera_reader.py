# SPDX-License-Identifier: Apache-2.0
"""CameraReader: single images of a camera, outside of samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robostream.assemble.cameras import find_frames, find_video_shape
from robostream.assemble.images import Pixels, decode_image
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import RowReader
from robostream.decode import FrameEngine
from robostream.meta import DepthCoding, decode_depth, image_shape, is_depth

_OPEN_VIDEOS = 8


class CameraReader:
    """Reads images of cameras; of a video, decodes only the wanted frames and what they depend on.

    For one thread. It reads byte ranges of remote files and downloads no whole file.
    """

    def __init__(self, dataset: OpenedDataset) -> None:
        self._dataset = dataset
        self._opener = dataset.file_opener()
        self._engine = FrameEngine(
            self._opener.open,
            budget_bytes=0,
            max_files=_OPEN_VIDEOS,
            index_folder=dataset.index_folder,
        )
        self._rows: dict[str, RowReader] = {}

    def __enter__(self) -> CameraReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()
        for reader in self._rows.values():
            reader.close()

    def read(self, key: str, episode: int, frames: Sequence[int]) -> list[Pixels]:
        """Return (channels, height, width) of frames, ascending, of a camera's episode.

        Colours are uint8, depth is in its recorded unit.
        """
        if self._dataset.meta.features[key]["dtype"] == "image":
            return self._read_stored(key, episode, frames)
        return self._read_video(key, episode, frames)

    def _read_video(self, key: str, episode: int, frames: Sequence[int]) -> list[Pixels]:
        entry = self._dataset.meta.info.features[key]
        file, numbers = find_frames(self._dataset, self._engine.files, episode, key)
        shape = find_video_shape(file, int(numbers[0]), entry)
        out = np.empty((len(frames), *shape), np.uint16 if is_depth(entry) else np.uint8)
        self._engine.read(file.name, numbers[np.asarray(frames, np.int64)], out)
        if is_depth(entry):
            info = entry.get("info") or {}
            out = decode_depth(out, DepthCoding.from_info(info), info.get("depth_unit") or "m")
        return list(out)

    def _read_stored(self, key: str, episode: int, frames: Sequence[int]) -> list[Pixels]:
        if key not in self._rows:
            self._rows[key] = RowReader(self._dataset, self._opener, [key])
        rows = self._rows[key].read(episode)
        channels, _, _ = image_shape(self._dataset.meta.info.features[key])
        place = f"{self._dataset.files.url}: {key}, episode {episode}"
        return [
            decode_image(
                rows.object_at(key, frame), where=f"{place}, frame {frame}", channels=channels
            )
            for frame in frames
        ]
