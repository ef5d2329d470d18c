# SPDX-License-Identifier: Apache-2.0
"""The map-style dataset."""

from robostream import LeRobotDataset

__all__ = ["LeRobotDataset"]
