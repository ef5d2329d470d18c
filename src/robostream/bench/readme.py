# SPDX-License-Identifier: Apache-2.0
"""The README's figures: tables and picture, all from the JSON of `bench suite`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robostream.bench.charts import COLOURS, ROW_PX, draw_bars, draw_curve, draw_svg, steps
from robostream.bench.docs import RESULTS, Publication
from robostream.bench.results import Figures, read_figures
from robostream.bench.table import Column, format_table, markdown_table, select_cells

SUITE_NAME = "suite.json"
# `robostream bench loader --workers 16`, on another machine.
_LARGE = RESULTS / "loader-16-cores.json"
_PICTURE = Path("docs/bench.svg")
_STREAMED: dict[str, Column] = {
    "data": "data",
    "sample": lambda case: f"{case['mode']}, batch {case['batch_size']:.0f}",
    "set": "setting",
    "samples/s": "samples_per_s",
    "images/s": "images_per_s",
    "over the floor": "over_floor",
    "first batch, s": "first_batch_latency_s",
    "lowest 2 s of the first ten, samples/s": "start_lowest_samples_per_s",
    "decoded per delivered": "amplification",
    "memory, GB": "peak_pss_gb",
}
_OTHER = ("command", "what", "figure")


def _readme_block(repo: Path) -> str:
    """Return the README's section of figures."""
    figures = read_figures(repo / RESULTS / SUITE_NAME)
    large = read_figures(repo / _LARGE) if (repo / _LARGE).exists() else None
    machine = figures["machine"]
    parts = [
        f"`make bench` measured this on {machine['cpus']} cores of {machine['cpu']} in "
        f"{figures['seconds'] / 60:.0f} minutes (medians of {figures['rounds']} interleaved "
        f"rounds; [JSON]({RESULTS / SUITE_NAME})), and measures it on yours.",
        f"![Throughput beside the decode floor, and the first minute]({_PICTURE})",
        markdown_table(list(_STREAMED), select_cells(figures["cases"], _STREAMED)),
        "The floor is PyAV decoding the same files alone, in as many processes as workers. single: "
        "one frame of each camera; sarm: 8, a second apart. Measured in the first epoch, when "
        "no frame is cached yet, after 5 batches of warm-up.",
        markdown_table(_OTHER, _other_rows(figures) + (_large_rows(large) if large else [])),
    ]
    return "\n\n".join(parts)


def suite_text(figures: Figures) -> str:
    """Return the same tables for a terminal. Pure."""
    return (
        f"\n{format_table(list(_STREAMED), select_cells(figures['cases'], _STREAMED))}\n\n"
        f"{format_table(_OTHER, _other_rows(figures))}"
    )


def _other_rows(figures: Figures) -> list[list[str]]:
    meta = max(figures["meta"]["rows"], key=lambda row: int(row["episodes"]))
    plan = figures["plan"]["results"][-1]
    node = _find(figures["node"], episodes=2_000, cameras=3, ranks=8, workers=16)
    mixed = _find(figures["shuffle"], method="robostream", pool_size=64)
    decoded = "; ".join(
        f"{row['videos']}: {row['over_floor']:.2f}"
        for row in figures["decode"]["results"]
        if row["read"] == "in order"
    )
    loaded = f"{meta['load_s'] + meta['fingerprint_s']:.2f} s, {meta['peak_bytes'] / 1e6:.0f} MB"
    started = f"{plan['start_s']:.2f} s, {plan['peak_rss_mb']:.0f} MB"
    busy = "share of their time that workers of 8 ranks x 16 are busy (simulated)"
    diverse = "distinct episodes per batch of 64 over a uniform shuffle's, pool 64"
    return [
        ["`bench meta`", f"load the metadata of {meta['episodes']:,} episodes", loaded],
        ["`bench plan`", f"start an epoch of {plan['frames']:.1e} frames", started],
        ["", "a seek at 99 % of it over one at 1 %", f"{plan['seek_ratio']:.2f}"],
        ["`bench node`", busy, f"{node['share of time used']:.2f}"],
        ["`bench decode`", "map-style reading in order, one thread, over the floor", decoded],
        ["`bench shuffle`", diverse, f"{mixed['diversity']:.2f}"],
        *_remote_rows(figures["remote"]),
    ]


def _remote_rows(figures: Figures) -> list[list[str]]:
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


def _large_rows(figures: Figures) -> list[list[str]]:
    workers = max(case["workers"] for case in figures["cases"])
    cases = [case for case in figures["cases"] if case["workers"] == workers]
    ratios = "; ".join(f"{case['case']}: {case['over_floor']:.2f}" for case in cases)
    what = f"on {figures['machine']['cpus']} cores, over the floor ([JSON]({_LARGE}))"
    return [[f"`bench loader --workers {workers}`", what, ratios]]


def _find(figures: Figures, **wanted: object) -> Figures:
    rows: list[Figures] = figures["results"]
    return next(row for row in rows if wanted.items() <= row.items())


def _picture(repo: Path) -> bytes:
    """Return the README's picture: throughput beside the floor, and the first minute of a run."""
    figures = read_figures(repo / RESULTS / SUITE_NAME)
    cases, first = figures["cases"], figures["first_minute"]
    bars_px, curve_px = len(cases) * ROW_PX + 60, 200

    def draw(figure: Any) -> None:
        above, below = figure.subplots(2, 1, height_ratios=[bars_px, curve_px])
        labels = [
            f"{case['name']}, {case['mode']}\n{case['images_per_s']:,.0f} images/s, "
            f"{case['over_floor']:.2f} of the floor"
            for case in cases
        ]
        values = [case["images_per_s"] for case in cases]
        marks = [case["floor_images_per_s"] for case in cases]
        draw_bars(above, labels, values, [COLOURS[case["mode"]] for case in cases], marks=marks)
        title = "Images per second after the warm-up"
        above.set_title(f"{title} (line: decoding the same files alone, in as many processes)")
        interval_s = first["stretch_s"]
        epochs = first["frames_measured"] / first["dataset"]["frames"]
        area = steps(first["samples_per_s_by_stretch"], interval_s)
        draw_curve(below, area, COLOURS["single"])
        below.set_title(
            f"The first minute with nothing set: samples per second in each {interval_s:.0f} s, "
            f"over {epochs:.0f} epochs"
        )
        below.set(xlabel="s", xlim=(0, None), ylim=(0, None))

    return draw_svg(draw, width=860, height=bars_px + curve_px, salt="bench")


PUBLICATION = Publication(Path("README.md"), {"bench": _readme_block}, {_PICTURE: _picture})
