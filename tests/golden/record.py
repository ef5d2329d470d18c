# SPDX-License-Identifier: Apache-2.0
"""Record what a version delivers: orders, receipts, states and rows, through public names only.

The recorded file was written by commit 2946d05. Write it anew only for a change of order that the
changelog announces:

    python -m tests.golden.record > tests/golden/golden.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from typing import Any

import torch

from robostream import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    StreamingDataLoader,
    StreamingLeRobotDataset,
)
from robostream.plan import EpochPlan, format_receipt
from tests.fixture_datasets import FIXTURES, NAMES

# Each is a stream over a fixture: what it selects, how it is shuffled, and which rank it is.
STREAMS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "seeded": {"seed": 7, "episode_pool_size": 2},
    "lanes": {"seed": 3, "lanes": 5, "rank": 1, "world_size": 3},
    "ordered": {"shuffle": False, "rank": 0, "world_size": 2},
    "selected": {"episodes": [1], "seed": 11},
}
PLANS: dict[str, dict[str, Any]] = {
    "even": {"lengths": [50] * 40, "seed": 0, "lanes": 8, "pool_size": 8},
    "uneven": {"lengths": [3 + 7 * i % 90 for i in range(101)], "seed": 9, "lanes": 16},
    "tiny": {"lengths": [1, 2, 3], "seed": 1, "lanes": 3, "pool_size": 1},
    "whole": {"lengths": [30, 40, 50], "seed": 2, "lanes": 2, "pool_size": 500},
    "ordered": {"lengths": [7, 9, 11], "seed": 2, "lanes": 4, "shuffle": False},
    "quarantined": {"lengths": [20] * 12, "seed": 4, "lanes": 6, "quarantined": [3, 5]},
}


def digest(values: Iterable[object]) -> str:
    """Return a digest of values in their order; of tensors, of dtype, shape and bytes."""
    sha = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            head = f"{value.dtype}{tuple(value.shape)}"
            sha.update(head.encode() + value.contiguous().numpy().tobytes())
        else:
            sha.update(repr(value).encode())
    return sha.hexdigest()[:24]


def record_plan(options: dict[str, Any]) -> dict[str, Any]:
    """Return an epoch's order and receipts."""
    found = {}
    for epoch in (0, 1, 1000):
        plan = EpochPlan(epoch=epoch, **({"pool_size": 64, "shuffle": True} | options))
        episodes, frames = plan.slice(0, plan.num_frames)
        places = [0, 1, plan.num_frames // 3, plan.num_frames]
        receipts = [format_receipt(plan.receipt(place)) for place in places]
        found[str(epoch)] = {
            "order": digest([*episodes.tolist(), *frames.tolist()]),
            "receipts": receipts,
        }
    return found


def record_stream(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return digests of the batches of two epochs without pictures, and states between them."""
    step_s = 1 / LeRobotDatasetMetadata("some/name", root=FIXTURES / name).fps
    windows = {"action": [-step_s, 0, 4 * step_s]}
    settings = {"rank": 0, "world_size": 1, "camera_keys": [], "delta_timestamps": windows}
    stream = StreamingLeRobotDataset("some/name", root=FIXTURES / name, **settings | options)
    loader = StreamingDataLoader(stream, 5, num_workers=0)
    states, epochs = [loader.state_dict()], []
    for _ in range(2):
        batches = []
        for batch in loader:
            batches.append(digest(part for key in batch for part in (key, batch[key])))
            states.append(loader.state_dict())
        epochs.append(batches)
    return {"epochs": epochs, "states": states}


def record_items(name: str) -> str:
    """Return a digest of a fixture's map-style items without their pictures."""
    dataset = LeRobotDataset("some/name", root=FIXTURES / name)
    cameras = set(dataset.meta.camera_keys)
    return digest(
        part
        for index in range(0, len(dataset), 7)
        for key, value in sorted(dataset[index].items())
        if key not in cameras
        for part in (key, value)
    )


def record() -> dict[str, Any]:
    """Return all of it."""
    return {
        "plans": {name: record_plan(options) for name, options in PLANS.items()},
        "streams": {
            f"{fixture}/{name}": record_stream(fixture, options)
            for fixture in NAMES
            for name, options in STREAMS.items()
        },
        "items": {name: record_items(name) for name in NAMES},
    }


if __name__ == "__main__":
    json.dump(record(), sys.stdout, separators=(",", ":"))
    print()
