# SPDX-License-Identifier: Apache-2.0
"""The stream."""

from robostream import StreamingLeRobotDataset

__all__ = ["StreamingLeRobotDataset"]
