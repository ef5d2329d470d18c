# SPDX-License-Identifier: Apache-2.0
"""Helpers of LeRobot's that its tests import."""

from typing import Any


def safe_shard(dataset: Any, index: int, num_shards: int) -> Any:
    """Raise: robostream has no shards of a Hugging Face dataset."""
    raise NotImplementedError("robostream reads no shards of a Hugging Face dataset")
