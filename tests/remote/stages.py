# SPDX-License-Identifier: Apache-2.0
"""Tests that wait for a stage that is not there yet."""

from __future__ import annotations

import inspect

import pytest

from robostream import StreamingLeRobotDataset

_HAS_CACHE = "cache_dir" in inspect.signature(StreamingLeRobotDataset).parameters

needs_retries = pytest.mark.skipif(False, reason="needs retries in the storage stage")
needs_cache = pytest.mark.skipif(not _HAS_CACHE, reason="needs cache_dir")
