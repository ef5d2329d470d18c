# SPDX-License-Identifier: Apache-2.0
"""A cache that cannot hold the dataset keeps what the run needs soonest."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from robostream.storage import Cache, CachedFile, cached_file
from robostream.storage.block_file import BlockLayout
from tests.remote.conftest import BATCH_SIZE
from tests.remote.fetched_bytes import fetched_bytes

pytestmark = pytest.mark.long

# Small ones, so that the small episodes of this dataset have several as large ones do.
BLOCK = 4096


def cached_bytes(dataset: Path) -> int:
    """The size of all rows and videos in a cache."""
    files = [*dataset.glob("data/**/*.parquet"), *dataset.glob("videos/**/*.mp4")]
    layouts = [BlockLayout(path.stat().st_size, BLOCK) for path in files]
    return sum(layout.file_bytes for layout in layouts)


def fetch(dataset: Path, folder: Path, limit: int) -> list[int]:
    """Stream two epochs, and return the bytes that were fetched in each."""
    Cache(folder, limit, BLOCK)
    options = {"frame_cache_bytes": 0, "episode_pool_size": 1, "lanes": 1}
    return fetched_bytes(dataset, folder, limit, batch_size=BATCH_SIZE, epochs=2, **options)


def test_the_furthest_next_use_goes_first(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eviction by next use fetches less again than eviction of the oldest."""
    # The cache counts in minutes which bytes are old. These epochs take seconds, so each use moves
    # its clock: otherwise all would be of one age, and what goes would be a matter of chance.
    seconds = itertools.count(1_700_000_000, 100)
    monkeypatch.setattr(cached_file, "time", SimpleNamespace(time=lambda: next(seconds)))
    limit = int(0.9 * cached_bytes(dataset))
    by_plan = fetch(dataset, tmp_path / "plan", limit)
    monkeypatch.setattr(CachedFile, "set_next_use", lambda *_: None)
    by_age = fetch(dataset, tmp_path / "age", limit)
    print(f"two epochs, fetched: {by_plan} bytes by plan, {by_age} by age")

    assert by_plan[0] <= 1.1 * by_age[0]
    assert by_plan[1] < 0.6 * by_age[1]
