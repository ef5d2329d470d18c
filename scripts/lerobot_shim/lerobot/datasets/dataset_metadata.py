# SPDX-License-Identifier: Apache-2.0
"""The metadata."""

from robostream import LeRobotDatasetMetadata

__all__ = ["LeRobotDatasetMetadata"]
