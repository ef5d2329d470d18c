# SPDX-License-Identifier: Apache-2.0
"""Loaders to compare: robostream's, other libraries', and plain map-style datasets.

Each is opened as its documentation shows. The plain ones are written as most are: they look up the
frames of each sample in the files, keep files open and discard decoded neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from robostream.bench.case import LoadRequest
from robostream.dataset import LeRobotDataset
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata

Batches = Iterable[dict[str, Any]]
_REPO_ID = "bench/loaders"
_BUFFER_SIZE = 1000


@dataclass(frozen=True, slots=True)
class LoaderEntry:
    """A loader that takes part in comparisons.

    Attributes:
        name: Its name in tables.
        how: How it is used.
        package: The package it needs beyond robostream's; "" for none.
        stored: The kinds of cameras it reads: "video", "image".
        open: A function that returns the batches of one epoch.
    """

    name: str
    how: str
    package: str
    stored: tuple[str, ...]
    open: Callable[[LoadRequest], Batches]


# Returns frames of a video file by number and frames/s: (frames, 3, height, width) uint8.
ReadFrames = Callable[[str, npt.NDArray[np.int64], float], torch.Tensor]


def pyav_reader() -> ReadFrames:
    """Return a reader with PyAV: it seeks to the key frame and decodes up to the frame."""
    # Each reader opens its own files: a decoder with threads does not survive a fork.
    open_video = cache(av.open)

    def read(path: str, frames: npt.NDArray[np.int64], fps: float) -> torch.Tensor:
        return torch.stack([_image_at(open_video(path), float(frame) / fps) for frame in frames])

    return read


def _image_at(container: Any, time_s: float) -> torch.Tensor:
    stream = container.streams.video[0]
    target = round(time_s / stream.time_base)
    container.seek(target, stream=stream)
    for frame in container.decode(stream):
        if frame.pts >= target:
            return torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1).contiguous()
    raise ValueError(f"no frame at {time_s} s")


def _torchcodec_reader() -> ReadFrames:
    from torchcodec.decoders import VideoDecoder  # optional

    open_video = cache(partial(VideoDecoder, seek_mode="approximate"))

    def read(path: str, frames: npt.NDArray[np.int64], fps: float) -> torch.Tensor:
        del fps  # torchcodec takes frame numbers
        images: torch.Tensor = open_video(path).get_frames_at(indices=frames.tolist()).data
        return images

    return read


class PlainDataset(Dataset[dict[str, Any]]):
    """The images of all cameras in a window around each frame; no rows."""

    def __init__(self, root: str, window_s: tuple[float, ...], read: ReadFrames) -> None:
        self.meta = LeRobotDatasetMetadata(_REPO_ID, root=root)
        self._offsets = np.array([round(at * self.meta.fps) for at in window_s])
        self._read_frames = read

    def __len__(self) -> int:
        return self.meta.total_frames

    def __getitem__(self, item: int) -> dict[str, Any]:
        """Return the images of one sample."""
        ends = self.meta.episodes["dataset_to_index"]
        episode = int(np.searchsorted(ends, item, side="right"))
        length = int(self.meta.episodes["length"][episode])
        frame = item - int(ends[episode]) + length
        wanted = np.clip(self._offsets + frame, 0, length - 1)
        images = {key: self._read(episode, key, wanted) for key in self.meta.video_keys}
        return {"index": item, **images}

    def _read(self, episode: int, key: str, frames: npt.NDArray[np.int64]) -> torch.Tensor:
        start_s = float(self.meta.episodes[f"videos/{key}/from_timestamp"][episode])
        path = str(self.meta.root / self.meta.get_video_file_path(episode, key))
        numbers = frames + round(start_s * self.meta.fps)
        return self._read_frames(path, numbers, self.meta.fps).squeeze(0)


def open_robostream(request: LoadRequest, **options: Any) -> StreamingDataLoader:
    """Return robostream's streaming loader, with options beyond the number of workers."""
    stream = StreamingLeRobotDataset(
        _REPO_ID,
        root=request.root,
        delta_timestamps=request.windows(),
        **{"return_uint8": True, **request.options},
    )
    return StreamingDataLoader(stream, request.batch_size, num_workers=request.workers, **options)


def open_plain(
    request: LoadRequest, *, make_reader: Callable[[], ReadFrames] = pyav_reader
) -> Batches:
    """Return a plain map-style dataset in a shuffling DataLoader."""
    return _shuffle(PlainDataset(request.root, request.window_s, make_reader()), request)


def _open_robostream_map(request: LoadRequest) -> Batches:
    windows = request.windows()
    dataset = LeRobotDataset(
        _REPO_ID, root=request.root, delta_timestamps=windows, return_uint8=True
    )
    return _shuffle(dataset, request)


def _open_lerobot_map(request: LoadRequest, *, backend: str) -> Batches:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset as Theirs  # optional

    dataset = Theirs(
        _REPO_ID,
        root=request.root,
        delta_timestamps=request.windows(),
        return_uint8=True,
        video_backend=backend,
    )
    return _shuffle(dataset, request)


def _open_lerobot_streaming(request: LoadRequest) -> Batches:
    from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset as Theirs  # optional

    windows = request.windows()
    dataset = Theirs(_REPO_ID, root=request.root, delta_timestamps=windows, return_uint8=True)
    return DataLoader(dataset, request.batch_size, num_workers=request.workers)


def _open_hf(request: LoadRequest, *, streaming: bool) -> Batches:
    """Return rows with images as tensors, through Hugging Face's datasets; it reads no videos."""
    import datasets  # optional

    files = sorted(map(str, Path(request.root).glob("data/*/*.parquet")))
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=streaming)
    if not streaming:
        return _shuffle(rows.with_format("torch"), request)
    rows = rows.shuffle(seed=0, buffer_size=_BUFFER_SIZE).with_format("torch")
    return DataLoader(rows, request.batch_size, num_workers=request.workers)


def _shuffle(dataset: Any, request: LoadRequest) -> Batches:
    return DataLoader(
        dataset,
        request.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        num_workers=request.workers,
        persistent_workers=request.workers > 0,
    )


_BOTH, _VIDEO, _IMAGE = ("video", "image"), ("video",), ("image",)
_MAP, _PLAIN = "DataLoader, shuffle=True", "DataLoader, images only"
_BUFFER = f"DataLoader, buffer of {_BUFFER_SIZE}"
_THEIRS = {
    backend: partial(_open_lerobot_map, backend=backend) for backend in ("torchcodec", "pyav")
}
_HF = {streaming: partial(_open_hf, streaming=streaming) for streaming in (False, True)}
_PLAIN_TORCHCODEC = partial(open_plain, make_reader=_torchcodec_reader)
_ENTRIES = (
    LoaderEntry("robostream", "StreamingDataLoader, nothing set", "", _BOTH, open_robostream),
    LoaderEntry("robostream, map-style", _MAP, "", _BOTH, _open_robostream_map),
    LoaderEntry("LeRobot, map-style, torchcodec", _MAP, "lerobot", _VIDEO, _THEIRS["torchcodec"]),
    LoaderEntry("LeRobot, map-style, PyAV", _MAP, "lerobot", _BOTH, _THEIRS["pyav"]),
    LoaderEntry("LeRobot, streaming", _BUFFER, "lerobot", _BOTH, _open_lerobot_streaming),
    LoaderEntry("plain torchcodec", _PLAIN, "torchcodec", _VIDEO, _PLAIN_TORCHCODEC),
    LoaderEntry("plain PyAV", _PLAIN, "", _VIDEO, open_plain),
    LoaderEntry("HF datasets, map-style", _MAP, "datasets", _IMAGE, _HF[False]),
    LoaderEntry("HF datasets, streaming", _BUFFER, "datasets", _IMAGE, _HF[True]),
)
LOADERS = {entry.name: entry for entry in _ENTRIES}
