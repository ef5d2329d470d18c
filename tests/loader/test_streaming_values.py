# SPDX-License-Identifier: Apache-2.0
"""P5: what is streamed equals what the map-style dataset reads."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from robostream import LeRobotDataset
from tests.fixture_datasets import ALL_NAMES, FIXTURES
from tests.loader.streams import assert_equals_map_style, flat, open_loader, open_stream
from tests.parameters import long_except, long_rows_except


def windows_of(name: str) -> dict[str, list[float]]:
    meta = LeRobotDataset("some/name", root=FIXTURES / name).meta
    step = 1 / meta.fps
    return {
        "action": [i * step for i in range(4)],
        "observation.state": [-step, 0.0],
        meta.camera_keys[0]: [-5 * step, 0.0, 3 * step],
        meta.camera_keys[-1]: [-5 * step, 0.0, 3 * step],
    }


@functools.cache
def items_of(name: str, kind: str) -> list[dict[str, Any]]:
    """All items of a fixture, read once for the streams that are compared with them."""
    dataset = LeRobotDataset(
        "some/name", root=FIXTURES / name, return_uint8=True, delta_timestamps=asked(name, kind)
    )
    return [dataset[number] for number in range(len(dataset))]


def asked(name: str, kind: str) -> dict[str, list[float]] | None:
    return windows_of(name) if kind == "window" else None


BUDGETS = [(0, 0), ("1GiB", 0), (0, 3), ("1GiB", 2), ("1GiB", 3)]


@pytest.mark.parametrize(("budget", "workers"), long_rows_except(BUDGETS, ("1GiB", 0), ("1GiB", 2)))
@pytest.mark.parametrize("kind", long_except(["plain", "window"], "window"))
@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_sample_equals_the_map_style_item(
    name: str, kind: str, budget: int | str, workers: int
) -> None:
    """All keys, pads and pixels of a whole epoch, with and without room for decoded frames."""
    items, windows = items_of(name, kind), asked(name, kind)
    stream = open_stream(FIXTURES / name, frame_cache_bytes=budget, delta_timestamps=windows)
    batches = list(open_loader(stream, batch_size=7, num_workers=workers))

    assert sorted(flat(batches)) == list(range(len(items)))
    for batch in batches:
        assert_equals_map_style(batch, items)


@pytest.mark.parametrize("workers", [0, 2])
def test_floats_too(workers: int) -> None:
    """float32 pictures are the same floats."""
    dataset = LeRobotDataset("some/name", root=FIXTURES / "h264_bframes")
    stream = open_stream(FIXTURES / "h264_bframes", return_uint8=False)
    for batch in open_loader(stream, batch_size=10, num_workers=workers):
        assert_equals_map_style(batch, dataset)


def test_single_samples_equal_items_too() -> None:
    """Iterating over the dataset itself gives items, not batches."""
    dataset = LeRobotDataset("some/name", root=FIXTURES / "av1_multifile", return_uint8=True)
    seen = []
    for sample in open_stream():
        seen.append(sample["index"].item())
        item = dataset[seen[-1]]
        assert sample.keys() == item.keys()
        for key, value in item.items():
            same = (
                torch.equal(sample[key], value) if torch.is_tensor(value) else sample[key] == value
            )
            assert same, key

    assert sorted(seen) == list(range(len(dataset)))


def test_transforms_are_applied_and_stacked() -> None:
    """A transform that changes shape and dtype works in batches."""
    stream = open_stream(image_transforms=lambda image: image[:, ::2, ::2].float() / 3)
    batch = next(iter(open_loader(stream, batch_size=5)))

    assert batch["observation.images.top"].shape == (5, 3, 24, 32)
    assert batch["observation.images.wrist"].dtype == torch.float32
