# SPDX-License-Identifier: Apache-2.0
"""Loaders to compare, and what each delivers in one epoch.

The loaders are robostream's, other libraries', and plain map-style datasets. Each is opened as its
documentation shows. The plain ones are written as most are: they look up the frames of each sample
in the files, keep files open and discard decoded neighbours.

A delivery is checked frame by frame: every image is compared with the one decoded from the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from robostream.bench.measure import BenchCase
from robostream.bench.results import Figures
from robostream.dataset import LeRobotDataset
from robostream.decode import one_thread
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata

Batches = Iterable[dict[str, Any]]
OpenLoader = Callable[[BenchCase], Batches]
# Returns frames of a video file by number and frames/s: (frames, 3, height, width) uint8.
ReadFrames = Callable[[str, npt.NDArray[np.int64], float], torch.Tensor]
Images = npt.NDArray[np.uint8]
_REPO_ID = "bench/loaders"
_BUFFER_SIZE = 1000
# The mean difference between two decoders' images of one frame is below this, in levels of 255.
# Images of different frames differ by far more.
_ROUNDING = 3.0


@dataclass(frozen=True, slots=True)
class LoaderEntry:
    """A loader that takes part in comparisons."""

    name: str
    how: str  # how it is used
    package: str  # that it needs beyond robostream's; "" for none
    stored: tuple[str, ...]  # the kinds of cameras that it reads: "video", "image"
    open: OpenLoader  # returns the batches of one epoch


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
            image = frame.to_ndarray(format="rgb24", **one_thread())
            return torch.from_numpy(image).permute(2, 0, 1).contiguous()
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

    def __init__(self, case: BenchCase, read: ReadFrames) -> None:
        self.meta = LeRobotDatasetMetadata(_REPO_ID, root=case.data.open())
        self._offsets = np.array([round(at * self.meta.fps) for at in case.window_s])
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
        found: dict[str, Any] = {"index": item}
        for key in self.meta.video_keys:
            start_s = float(self.meta.episodes[f"videos/{key}/from_timestamp"][episode])
            path = str(self.meta.root / self.meta.get_video_file_path(episode, key))
            numbers = wanted + round(start_s * self.meta.fps)
            found[key] = self._read_frames(path, numbers, self.meta.fps).squeeze(0)
        return found


def open_robostream(case: BenchCase, **options: Any) -> StreamingDataLoader:
    """Return robostream's streaming loader, with options beyond the number of workers."""
    stream = _open(case, StreamingLeRobotDataset, **case.options)
    return StreamingDataLoader(stream, case.batch_size, num_workers=case.workers, **options)


def open_plain(case: BenchCase, *, make_reader: Callable[[], ReadFrames] = pyav_reader) -> Batches:
    """Return a plain map-style dataset in a shuffling DataLoader."""
    return _shuffle(PlainDataset(case, make_reader()), case)


def _open(case: BenchCase, make_dataset: Callable[..., Any], **options: Any) -> Any:
    """Return a dataset with LeRobot's arguments."""
    options = {"return_uint8": True, **options}
    return make_dataset(_REPO_ID, root=case.data.open(), delta_timestamps=case.windows(), **options)


def _open_map(case: BenchCase) -> Batches:
    return _shuffle(_open(case, LeRobotDataset), case)


def _open_lerobot_map(case: BenchCase, *, backend: str) -> Batches:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset as Theirs  # optional

    return _shuffle(_open(case, Theirs, video_backend=backend), case)


def _open_lerobot_streaming(case: BenchCase) -> Batches:
    from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset as Theirs  # optional

    return DataLoader(_open(case, Theirs), case.batch_size, num_workers=case.workers or 0)


def _open_hf(case: BenchCase, *, streaming: bool) -> Batches:
    """Return rows with images as tensors, through Hugging Face's datasets; it reads no videos."""
    import datasets  # optional

    files = case.data.files("data/*/*.parquet")
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=streaming)
    if not streaming:
        return _shuffle(rows.with_format("torch"), case)
    rows = rows.shuffle(seed=0, buffer_size=_BUFFER_SIZE).with_format("torch")
    return DataLoader(rows, case.batch_size, num_workers=case.workers or 0)


def _shuffle(dataset: Any, case: BenchCase) -> Batches:
    return DataLoader(
        dataset,
        case.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        num_workers=case.workers or 0,
        persistent_workers=bool(case.workers),
    )


_BOTH, _VIDEO, _IMAGE = ("video", "image"), ("video",), ("image",)
_MAP, _PLAIN = "DataLoader, shuffle=True", "DataLoader, images only"
_BUFFER = f"DataLoader, buffer of {_BUFFER_SIZE}"
_TORCHCODEC, _PYAV = (
    partial(_open_lerobot_map, backend=backend) for backend in ("torchcodec", "pyav")
)
_HF_MAP, _HF_STREAMING = (partial(_open_hf, streaming=streaming) for streaming in (False, True))
_PLAIN_TORCHCODEC = partial(open_plain, make_reader=_torchcodec_reader)
_ENTRIES = (
    LoaderEntry("robostream", "StreamingDataLoader, nothing set", "", _BOTH, open_robostream),
    LoaderEntry("robostream, map-style", _MAP, "", _BOTH, _open_map),
    LoaderEntry("LeRobot, map-style, torchcodec", _MAP, "lerobot", _VIDEO, _TORCHCODEC),
    LoaderEntry("LeRobot, map-style, PyAV", _MAP, "lerobot", _BOTH, _PYAV),
    LoaderEntry("LeRobot, streaming", _BUFFER, "lerobot", _BOTH, _open_lerobot_streaming),
    LoaderEntry("plain torchcodec", _PLAIN, "torchcodec", _VIDEO, _PLAIN_TORCHCODEC),
    LoaderEntry("plain PyAV", _PLAIN, "", _VIDEO, open_plain),
    LoaderEntry("HF datasets, map-style", _MAP, "datasets", _IMAGE, _HF_MAP),
    LoaderEntry("HF datasets, streaming", _BUFFER, "datasets", _IMAGE, _HF_STREAMING),
)
LOADERS = {entry.name: entry for entry in _ENTRIES}


def count_delivered(open_loader: OpenLoader, case: BenchCase) -> Figures:
    """Return counts of one epoch, and whether another worker changes the order.

    Counts missing and repeated frames, and images that are not those of their frame.
    """
    torch.set_num_threads(1)
    meta = LeRobotDatasetMetadata("bench/delivery", root=case.data.open())
    expected = expected_images(meta)
    order: list[int] = []
    distinct: list[int] = []
    wrong = 0
    ends = meta.episodes["dataset_to_index"]
    for batch in open_loader(case):
        indices = np.asarray(batch["index"]).reshape(-1)
        order += indices.tolist()
        distinct.append(len(np.unique(np.searchsorted(ends, indices, side="right"))))
        wrong += sum(
            not is_right(batch[key][place], images, index)
            for place, index in enumerate(indices.tolist())
            for key, images in expected.items()
        )
    num_seen = len(set(order))
    others = open_loader(replace(case, workers=(case.workers or 0) + 1))
    other = [int(index) for batch in others for index in np.asarray(batch["index"]).reshape(-1)]
    return {
        "frames": meta.total_frames,
        "delivered": len(order),
        "missing": meta.total_frames - num_seen,
        "repeated": len(order) - num_seen,
        "wrong_pictures": wrong,
        "pictures": len(order) * len(expected),
        "same_order_with_more_workers": order == other,
        "episodes_per_batch": float(np.mean(distinct)),
    }


def is_right(image: Any, images: Images, index: int) -> bool:
    """Return whether an image is closest to that of its own frame, among its neighbours.

    Decoders round colours differently; neighbouring frames differ by more than that.
    """
    given = in_levels(image)
    near = range(max(0, index - 3), min(len(images), index + 4))
    gaps = {at: float(np.abs(images[at] - given).mean()) for at in near}
    return gaps[index] <= min(gaps.values()) + 1e-6 and gaps[index] < _ROUNDING


def in_levels(image: Any) -> npt.NDArray[np.float32]:
    """Return an image as (height, width, 3) from 0 to 255; some loaders give 0 to 1. Pure."""
    given = np.asarray(image)
    levels = given.astype(np.float32) * (255 if given.dtype.kind == "f" else 1)
    return levels.transpose(1, 2, 0) if levels.shape[0] == 3 else levels


def expected_images(meta: LeRobotDatasetMetadata) -> dict[str, Images]:
    """Return every image of a dataset by camera, decoded file by file without robostream's decoder.

    Each array is (frames, height, width, 3).
    """
    read = {key: _from_videos if key in meta.video_keys else _from_rows for key in meta.camera_keys}
    return {key: read[key](meta, key) for key in read}


def _from_videos(meta: LeRobotDatasetMetadata, key: str) -> Images:
    files: dict[Path, Images] = {}
    images = []
    for episode in range(meta.total_episodes):
        path = Path(meta.root, meta.get_video_file_path(episode, key))
        if path not in files:
            with av.open(str(path)) as container:
                # On one thread: PyAV's own threads for this would not survive a loader's fork.
                options = one_thread()
                frames = [
                    f.to_ndarray(format="rgb24", **options) for f in container.decode(video=0)
                ]
            files[path] = np.stack(frames)
        first = round(float(meta.episodes[f"videos/{key}/from_timestamp"][episode]) * meta.fps)
        images.append(files[path][first : first + int(meta.episodes["length"][episode])])
    return np.concatenate(images)


def _from_rows(meta: LeRobotDatasetMetadata, key: str) -> Images:
    table = pq.read_table(Path(meta.root, "data"), columns=["index", key]).sort_by("index")
    rows: list[Any] = table[key].to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in rows])
