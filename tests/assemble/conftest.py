# SPDX-License-Identifier: Apache-2.0
"""What tests of rows share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from robostream import config
from robostream.storage import open_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path / "home"))
    open_cache.cache_clear()
    yield config.cache_home()
    open_cache.cache_clear()
