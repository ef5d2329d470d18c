# SPDX-License-Identifier: Apache-2.0
"""robostream under LeRobot's import paths, as far as LeRobot's tests need it. Our code."""
