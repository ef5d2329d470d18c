# SPDX-License-Identifier: Apache-2.0
"""The README's tables: every figure from the JSON of the suite, none by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robostream.bench.results import Figures, read_figures, write_json
from robostream.bench.suite.picture import picture_svg
from robostream.bench.table import format_table, markdown_table, refresh_block
from robostream.storage import write_bytes_atomic

MARK = "bench"
SUITE = Path("benchmarks/results/suite.json")
# `robostream bench loader --workers 16`, on another machine.
LARGE = Path("benchmarks/results/loader-16-cores.json")
PICTURE = Path("docs/bench.svg")
_STREAMED = (
    "data",
    "sample",
    "set",
    "samples/s",
    "images/s",
    "over the floor",
    "first batch, s",
    "lowest 2 s of the first ten, samples/s",
    "decoded per delivered",
    "memory, GB",
)
_OTHER = ("command", "what", "figure")


def refresh(repo: Path, figures: Figures) -> None:
    """Keep the figures in a checkout, and bring its README and picture up to date."""
    write_json(repo / SUITE, figures)
    write_bytes_atomic(repo / PICTURE, picture_svg(figures).encode())
    readme = repo / "README.md"
    refresh_block(readme, MARK, block_of(repo))
    print(f"refreshed {readme}, {repo / PICTURE} and {repo / SUITE}")


def block_of(repo: Path) -> str:
    """Return what the README says between its marks, from the JSON files of the checkout."""
    large = read_figures(repo / LARGE) if (repo / LARGE).exists() else None
    return readme_block(read_figures(repo / SUITE), large)


def readme_block(figures: Figures, large: Figures | None) -> str:
    """Return the README's section of figures. Pure."""
    machine = figures["machine"]
    parts = [
        f"`make bench` measured this on {machine['cpus']} cores of {machine['cpu']} in "
        f"{figures['seconds'] / 60:.0f} minutes (medians of {figures['rounds']} rounds that take "
        f"turns; [JSON]({SUITE})), and measures it on yours.",
        f"![Throughput beside the decode floor, and the first minute]({PICTURE})",
        markdown_table(_STREAMED, _streamed(figures["cases"])),
        "The floor is PyAV decoding the same files alone, in as many processes as workers. single: "
        "one picture of each camera; sarm: 8, a second apart. Measured in the first epoch, when "
        "nothing is kept yet, after 5 batches of warm-up.",
        markdown_table(_OTHER, _others(figures) + (_large(large) if large else [])),
    ]
    return "\n\n".join(parts)


def suite_text(figures: Figures) -> str:
    """Return the same tables for a terminal. Pure."""
    return (
        f"\n{format_table(_STREAMED, _streamed(figures['cases']))}\n\n"
        f"{format_table(_OTHER, _others(figures))}"
    )


def _streamed(cases: Sequence[Figures]) -> list[list[Any]]:
    return [
        [
            case["data"],
            f"{case['mode']}, batch {case['batch_size']:.0f}",
            case["setting"],
            case["samples_per_s"],
            case["images_per_s"],
            case["over_floor"],
            case["first_batch_latency_s"],
            case["start_lowest_samples_per_s"],
            case["amplification"],
            case["peak_pss_gb"],
        ]
        for case in cases
    ]


def _others(figures: Figures) -> list[list[str]]:
    meta = max(figures["meta"]["rows"], key=lambda row: int(row["episodes"]))
    plan = figures["plan"]["results"][-1]
    node = _row(figures["node"], episodes=2_000, cameras=3, ranks=8, workers=16)
    mixed = _row(figures["shuffle"], method="robostream", pool_size=64)
    in_order = {
        row["videos"]: row["over_floor"]
        for row in figures["decode"]["results"]
        if row["read"] == "in order"
    }
    decoded = "; ".join(f"{name}: {ratio:.2f}" for name, ratio in in_order.items())
    return [
        [
            "`bench meta`",
            f"load the metadata of {meta['episodes']:,} episodes",
            f"{meta['load_s'] + meta['fingerprint_s']:.2f} s, {meta['peak_bytes'] / 1e6:.0f} MB",
        ],
        [
            "`bench plan`",
            f"start an epoch of {plan['frames']:.1e} frames",
            f"{plan['start_s']:.2f} s, {plan['peak_rss_mb']:.0f} MB",
        ],
        ["", "a seek at 99 % of it over one at 1 %", f"{plan['seek_ratio']:.2f}"],
        [
            "`bench node`",
            "share of their time that workers of 8 ranks x 16 use (simulated)",
            f"{node['share of time used']:.2f}",
        ],
        ["`bench decode`", "map-style reading in order, one thread, over the floor", decoded],
        [
            "`bench shuffle`",
            "distinct episodes per batch of 64 over a uniform shuffle's, pool 64",
            f"{mixed['diversity']:.2f}",
        ],
        *_remote(figures["remote"]),
    ]


def _remote(figures: Figures) -> list[list[str]]:
    first, second = figures["fast"]
    paced = figures["paced"][0]
    return [
        [
            "`bench remote`",
            "behind 20 ms and 200 Mbit/s: first batch; bytes fetched over needed, epochs 1 and 2",
            f"{first['first_batch_s']:.1f} s; {first['fetched_over_needed']:.3f}, "
            f"{second['fetched_over_needed']:.3f}",
        ],
        [
            "",
            f"requests per episode and camera; waiting, with {figures['link_over_need']:.1f} times "
            "the link that is needed",
            f"{first['requests_per_episode_and_camera']:.2f}; {paced['wait_share']:.1%}",
        ],
    ]


def _row(figures: Figures, **wanted: object) -> Figures:
    rows: list[Figures] = figures["results"]
    return next(row for row in rows if wanted.items() <= row.items())


def _large(figures: Figures) -> list[list[str]]:
    cpus = figures["machine"]["cpus"]
    workers = max(case["workers"] for case in figures["cases"])
    cases = [case for case in figures["cases"] if case["workers"] == workers]
    ratios = "; ".join(f"{case['case']}: {case['over_floor']:.2f}" for case in cases)
    return [
        [
            f"`bench loader --workers {workers}`",
            f"on {cpus} cores, over the floor ([JSON]({LARGE}))",
            ratios,
        ]
    ]
