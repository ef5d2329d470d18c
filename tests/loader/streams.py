# SPDX-License-Identifier: Apache-2.0
"""Streams over the fixture datasets, and what they deliver, for the loader's tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from robostream import LeRobotDataset, StreamingDataLoader, StreamingLeRobotDataset
from tests.fixture_datasets import FIXTURES

AV1 = FIXTURES / "av1_multifile"


def open_stream(root: Path | str = AV1, **options: Any) -> StreamingLeRobotDataset:
    """A stream over a fixture, single-threaded unless asked otherwise."""
    settings: dict[str, Any] = {"rank": 0, "world_size": 1, "return_uint8": True} | options
    return StreamingLeRobotDataset("some/name", root=root, **settings)


def blind_stream(root: Path = AV1, **options: Any) -> StreamingLeRobotDataset:
    """A stream without cameras: order is all that matters, and it is fast."""
    return open_stream(root, camera_keys=[], **options)


def open_loader(
    stream: StreamingLeRobotDataset, batch_size: int = 1, **options: Any
) -> StreamingDataLoader:
    """A loader that builds batches in this process, unless asked otherwise."""
    return StreamingDataLoader(stream, batch_size, **({"num_workers": 0} | options))


def indices(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    """The dataset-wide frame indices of each batch."""
    return [batch["index"].tolist() for batch in batches]


def flat(batches: Iterable[dict[str, Any]]) -> list[int]:
    """The dataset-wide frame indices of all batches."""
    return [index for batch in indices(batches) for index in batch]


def global_batches(loaders: list[StreamingDataLoader]) -> list[list[int]]:
    """Each step's frames over all ranks, sorted; asserts that ranks deliver equally many."""
    per_rank = [indices(loader) for loader in loaders]
    assert len({len(batches) for batches in per_rank}) == 1
    return [
        sorted(index for batch in step for index in batch) for step in zip(*per_rank, strict=True)
    ]


def assert_equals_map_style(
    batch: dict[str, Any], dataset: LeRobotDataset | Sequence[dict[str, Any]]
) -> None:
    """Every sample of a batch equals the map-style item of its index: keys, dtypes, values."""
    for place, index in enumerate(batch["index"].tolist()):
        item = dataset[index]
        assert batch.keys() == item.keys()
        for key, value in item.items():
            found = batch[key][place]
            if isinstance(value, torch.Tensor):
                assert found.dtype == value.dtype, key
                assert torch.equal(found, value), (key, index)
            else:
                assert found == value, key
