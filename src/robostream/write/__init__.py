# SPDX-License-Identifier: Apache-2.0
"""Recording: frames in, a LeRobot v3.0 dataset out."""
