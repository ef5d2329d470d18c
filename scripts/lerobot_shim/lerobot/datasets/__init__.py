# SPDX-License-Identifier: Apache-2.0
"""robostream's classes under the names of lerobot.datasets."""
