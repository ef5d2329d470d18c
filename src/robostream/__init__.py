# SPDX-License-Identifier: Apache-2.0
"""Stream LeRobot v3.0 datasets into distributed PyTorch training."""

__version__ = "0.1.0"
