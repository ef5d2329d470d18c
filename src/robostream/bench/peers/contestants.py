# SPDX-License-Identifier: Apache-2.0
"""Who takes part, what each needs, and how it is opened, as its documentation shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from robostream.bench.peers.hf_datasets import BUFFER_SIZE, open_rows
from robostream.bench.peers.plain import PlainDataset
from robostream.bench.peers.plain_pyav import PyavReader
from robostream.bench.peers.plain_torchcodec import TorchcodecReader
from robostream.dataset import LeRobotDataset
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata

_REPO_ID = "bench/peers"


@dataclass(frozen=True, slots=True)
class Request:
    """What a contestant is asked for.

    Attributes:
        offsets: The pictures of a sample, in frames relative to its own.
    """

    root: str
    offsets: list[int]
    batch_size: int
    workers: int

    def windows(self) -> dict[str, list[float]] | None:
        """Return the offsets as `delta_timestamps`."""
        if self.offsets == [0]:
            return None
        meta = LeRobotDatasetMetadata(_REPO_ID, root=self.root)
        return {key: [offset / meta.fps for offset in self.offsets] for key in meta.camera_keys}


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to load a dataset.

    Attributes:
        name: How it is called.
        how: How it is used.
        package: The package it needs beyond robostream's; "" for none.
        stored: The kinds of cameras it reads: "video", "image".
        open: Returns the batches of an epoch.
    """

    name: str
    how: str
    package: str
    stored: tuple[str, ...]
    open: Callable[[Request], Iterable[dict[str, Any]]]


def _robostream(request: Request) -> Iterable[dict[str, Any]]:
    stream = StreamingLeRobotDataset(
        _REPO_ID, root=request.root, delta_timestamps=request.windows(), return_uint8=True
    )
    return StreamingDataLoader(stream, request.batch_size, num_workers=request.workers)


def _robostream_map(request: Request) -> Iterable[dict[str, Any]]:
    dataset = LeRobotDataset(
        _REPO_ID, root=request.root, delta_timestamps=request.windows(), return_uint8=True
    )
    return _shuffled(dataset, request)


def _lerobot_map(backend: str) -> Callable[[Request], Iterable[dict[str, Any]]]:
    def open_dataset(request: Request) -> Iterable[dict[str, Any]]:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset as Theirs  # optional

        dataset = Theirs(
            _REPO_ID,
            root=request.root,
            delta_timestamps=request.windows(),
            return_uint8=True,
            video_backend=backend,
        )
        return _shuffled(dataset, request)

    return open_dataset


def _lerobot_streaming(request: Request) -> Iterable[dict[str, Any]]:
    from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset as Theirs  # optional

    dataset = Theirs(
        _REPO_ID, root=request.root, delta_timestamps=request.windows(), return_uint8=True
    )
    return DataLoader(dataset, request.batch_size, num_workers=request.workers)


def _torchcodec(request: Request) -> Iterable[dict[str, Any]]:
    return _shuffled(PlainDataset(request.root, request.offsets, TorchcodecReader()), request)


def _pyav(request: Request) -> Iterable[dict[str, Any]]:
    return _shuffled(PlainDataset(request.root, request.offsets, PyavReader()), request)


def _hf_map(request: Request) -> Iterable[dict[str, Any]]:
    return _shuffled(open_rows(request.root, streaming=False), request)


def _hf_streaming(request: Request) -> Iterable[dict[str, Any]]:
    rows = open_rows(request.root, streaming=True)
    return DataLoader(rows, request.batch_size, num_workers=request.workers)


def _shuffled(dataset: Any, request: Request) -> Iterable[dict[str, Any]]:
    seeded = torch.Generator().manual_seed(0)
    return DataLoader(
        dataset,
        request.batch_size,
        shuffle=True,
        generator=seeded,
        num_workers=request.workers,
        persistent_workers=request.workers > 0,
    )


_BOTH, _VIDEO, _IMAGE = ("video", "image"), ("video",), ("image",)
CONTESTANTS = {
    one.name: one
    for one in (
        Contestant("robostream", "StreamingDataLoader, nothing set", "", _BOTH, _robostream),
        Contestant("robostream, map-style", "DataLoader, shuffle=True", "", _BOTH, _robostream_map),
        Contestant(
            "LeRobot, map-style, torchcodec",
            "DataLoader, shuffle=True",
            "lerobot",
            _VIDEO,
            _lerobot_map("torchcodec"),
        ),
        Contestant(
            "LeRobot, map-style, PyAV",
            "DataLoader, shuffle=True",
            "lerobot",
            _BOTH,
            _lerobot_map("pyav"),
        ),
        Contestant(
            "LeRobot, streaming", "DataLoader, buffer of 1000", "lerobot", _BOTH, _lerobot_streaming
        ),
        Contestant(
            "plain torchcodec", "DataLoader, pictures only", "torchcodec", _VIDEO, _torchcodec
        ),
        Contestant("plain PyAV", "DataLoader, pictures only", "", _VIDEO, _pyav),
        Contestant(
            "HF datasets, map-style", "DataLoader, shuffle=True", "datasets", _IMAGE, _hf_map
        ),
        Contestant(
            "HF datasets, streaming",
            f"DataLoader, buffer of {BUFFER_SIZE}",
            "datasets",
            _IMAGE,
            _hf_streaming,
        ),
    )
}
