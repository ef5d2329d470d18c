# SPDX-License-Identifier: Apache-2.0
"""Mixtures of the fixture datasets, and what their samples must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from robostream import LeRobotDataset, MixtureDataset, Source
from tests.fixture_datasets import FIXTURES

# Five unlike datasets: rates from 10 to 30, videos and images in Parquet, depth, other cameras.
NAMES = ("av1_multifile", "depth", "h264_bframes", "h264_long_gop", "images")
JOINTS = [f"j{n}" for n in range(6)]
# h264_long_gop has its actions in another order and without the last dimension.
NEW_NAMES = ["g", "j5", "j4", "j3", "j2", "j1", "j0"]
ALL_NAMES = [*JOINTS, "g"]
SIZE = (32, 40)


def unlike_sources() -> list[Source]:
    """All fixtures; the action of one is permuted and its front camera is called top."""
    sources = []
    for name in NAMES:
        feature_map: dict[str, Any] = {"action": ("action", ALL_NAMES)}
        if name == "h264_long_gop":
            feature_map = {
                "action": ("action", NEW_NAMES),
                "observation.images.front": "observation.images.top",
            }
        sources.append(Source(str(FIXTURES / name), feature_map=feature_map))
    return sources


def open_mixture(sources: list[Source] | None = None, **options: Any) -> MixtureDataset:
    """A mixture of fixtures for one rank, unless asked otherwise."""
    settings: dict[str, Any] = {"rank": 0, "world_size": 1} | options
    return MixtureDataset(sources or unlike_sources(), **settings)


def blind_mixture(names: tuple[str, ...] = NAMES, **options: Any) -> MixtureDataset:
    """A mixture without cameras: order is all that matters, and it is fast."""
    weights = options.pop("weight_of", {})
    sources = [
        Source(str(FIXTURES / name), camera_keys=[], weight=weights.get(name)) for name in names
    ]
    return open_mixture(sources, **options)


def pairs(batches: Any) -> list[tuple[int, int]]:
    """The (dataset, index in it) of each sample of batches, in order."""
    return [
        pair
        for batch in batches
        for pair in zip(batch["dataset_index"].tolist(), batch["index"].tolist(), strict=True)
    ]


def expected_item(
    name: str, dataset: LeRobotDataset, index: int, like: Mapping[str, Any]
) -> dict[str, Any]:
    """The map-style item, mapped by hand to the keys and shapes of a mixture's sample."""
    item = dict(dataset[index])
    if name == "h264_long_gop":
        item["observation.images.top"] = item.pop("observation.images.front")
        mask = item.pop("observation.images.front_is_pad", None)
        if mask is not None:
            item["observation.images.top_is_pad"] = mask
        item["action"] = item["action"][..., [NEW_NAMES.index(n) for n in ALL_NAMES]]
    expected: dict[str, Any] = {}
    for key, value in like.items():
        if key.endswith("_is_missing"):
            expected[key] = torch.tensor(key.removesuffix("_is_missing") not in item)
        elif key.endswith("_dim_is_pad"):
            shape = value.shape
            expected[key] = torch.full(shape, key.removesuffix("_dim_is_pad") not in item)
        elif key in item:
            expected[key] = item[key]
        elif key not in ("dataset_index", "group_index", "task_index"):
            is_mask = key.endswith("_is_pad")
            expected[key] = torch.full_like(value, True) if is_mask else torch.zeros_like(value)
    expected.pop("task_index")
    return expected


def numpy_equal(left: Any, right: Any) -> bool:
    """Whether two values of samples are equal, type and shape too."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and np.array_equal(left.numpy(), right.numpy())
    return bool(left == right)
