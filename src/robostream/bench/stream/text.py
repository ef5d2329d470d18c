# SPDX-License-Identifier: Apache-2.0
"""The figures of one run in a few lines."""

from __future__ import annotations

from robostream.bench.results import Figures


def as_text(figures: Figures) -> str:
    """Return what a person wants to know first. Pure."""
    lines = [
        f"{figures['root'] or figures['repo_id']} ({figures['source']}): {figures['mode']}, "
        f"batches of {figures['batch_size']}, {figures['num_workers']} workers, "
        f"pool {figures['episode_pool_size']}",
        f"  {figures['samples_per_s']:,.0f} samples/s (frames/s of this node), "
        f"{figures['images_per_s']:,.0f} images/s{_over_floor(figures)}",
        f"  first batch after {figures['first_batch_latency_s']:.2f} s; waits of "
        f"{figures['p50_batch_wait_ms']:.1f}, {figures['p95_batch_wait_ms']:.1f}, "
        f"{figures['p99_batch_wait_ms']:.1f} ms (p50, p95, p99)",
        f"  lowest of the first ten 2 s: {figures['start_lowest_samples_per_s']:,.0f} samples/s, "
        f"median {figures['start_median_samples_per_s']:,.0f}",
        f"  workers: {figures['decode_pct_worker_time']:.0f} % decode, "
        f"{figures['fetch_pct_worker_time']:.0f} % fetch, "
        f"{figures['convert_pct_worker_time']:.0f} % convert, "
        f"{figures['other_pct_worker_time']:.0f} % other; "
        f"{figures['amplification']:.2f} images decoded per image delivered",
        f"  {figures['episodes_per_batch_mean']:.1f} episodes per batch, "
        f"{figures['shuffle_randomness_frac']:.2f} of a uniform shuffle; "
        f"{figures['peak_pss_gb']:.2f} GB of memory at most",
    ]
    return "\n".join(lines)


def _over_floor(figures: Figures) -> str:
    floor = figures["floor_images_per_s"]
    return f", {figures['images_per_s'] / floor:.2f} of the decode floor" if floor else ""
