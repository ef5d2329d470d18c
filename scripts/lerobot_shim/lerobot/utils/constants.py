# SPDX-License-Identifier: Apache-2.0
"""Constants LeRobot's tests import."""

from robostream.config import lerobot_home

ACTION = "action"
HF_LEROBOT_HOME = lerobot_home()
