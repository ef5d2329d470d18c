# SPDX-License-Identifier: Apache-2.0
"""Made-up results with every field that a report reads, and cases on existing datasets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream.bench.measure import BenchCase
from robostream.bench.results import machine
from robostream.bench.stream import DEFINITIONS


@dataclass(frozen=True)
class Folder:
    """An existing dataset instead of a synthetic one."""

    root: Path
    title: str = "some data"

    def open(self) -> Path:
        """Return the folder."""
        return self.root


def case_of(root: Path, name: str = "fixture", **options: Any) -> BenchCase:
    """Return a case on an existing dataset."""
    return BenchCase(name, Folder(root), **options)  # type: ignore[arg-type]


def imagined_run(
    source: str = "hub", mode: str = "single", workers: int = 2, rate: float = 100.0
) -> dict[str, Any]:
    """Return the figures of a run that delivered `rate` samples per second."""
    images = 3 if mode == "single" else 24
    percentiles = {
        f"p{p}_{name}": p / 5
        for p in (50, 95, 99)
        for name in ("sample_latency_ms", "batch_wait_ms")
    }
    shares = {"decode": 60.0, "convert": 10.0, "fetch": 5.0, "copy": 5.0, "other": 20.0}
    return {
        "repo_id": "lab/cups",
        "source": source,
        "mode": mode,
        "video_decode_device": "cpu",
        "num_workers": workers,
        "batch_size": 32,
        "prefetch_factor": 2,
        "episode_pool_size": 64,
        "return_uint8": True,
        "frames_per_s_node": rate,
        "samples_per_s": rate,
        "images_per_s": rate * images,
        "floor_images_per_s": 500.0 * workers,
        "first_batch_latency_s": 0.8,
        **percentiles,
        **{f"{kind}_pct_worker_time": share for kind, share in shares.items()},
        "amplification": 1.02,
        "limited_by": "decoding: workers were busy 95% of their time",
        "video_decoder_cache": {"hits": 9, "misses": 1, "evictions": 0, "hit_rate": 0.9},
        "start_lowest_samples_per_s": rate / 2,
        "start_median_samples_per_s": rate,
        "stretch_s": 2.0,
        "samples_per_s_by_stretch": [rate / 2, rate, rate * 1.1, rate],
        "peak_rss_gb": 1.4,
        "peak_pss_gb": 1.1,
        "rss_gb_over_time": [[0.0, 0.2], [4.0, 1.2], [8.0, 1.4]],
        "pss_gb_over_time": [[0.0, 0.2], [4.0, 1.0], [8.0, 1.1]],
        "episodes_per_batch_mean": 25.0,
        "shuffle_randomness_frac": 0.9,
        "shuffle": {"seed": 42, "shuffle": True, "episode_pool_size": 64, "lanes": 48},
        "node": {"hostname": "n1", "rank": 0, "world_size": 1, "num_nodes": 1},
        "machine": machine(),
        "definitions": DEFINITIONS,
    }
