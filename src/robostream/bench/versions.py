# SPDX-License-Identifier: Apache-2.0
"""`bench versions`: a v2.1 dataset beside the same in v3.0, behind a proxy with latency.

v2.1 has three small files for each episode of two cameras; v3.0 has few large ones. Both deliver
the same frames in the same order. Each is streamed for one epoch with an empty cache, at full speed
and at half of the rate that v3.0 reaches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from robostream import config
from robostream.bench.case import BenchData, create_once
from robostream.bench.measure import run_rounds
from robostream.bench.remote import LINK, link_capacity, measure_need, stream_epochs
from robostream.bench.results import Figures, describe_cores
from robostream.bench.tables import DOCS, Column, Publication, Table
from robostream.meta import MOMENTS, LeRobotDatasetMetadata
from robostream.testing import Script, serve_files
from robostream.tools import SynthSpec
from robostream.write import VideoPart, frame_rate, split_videos

_SPEC = SynthSpec(
    episodes=2000, min_frames=24, max_frames=40, cameras=2, width=96, height=96, distinct=16
)
_ROUNDS = 3
_MEDIANS = ("first_batch_s", "samples_per_s", "wait_share", "fetched_over_needed")
_COLUMNS: dict[str, Column] = {
    "version": "version",
    "consumer": "consumer",
    "first batch, s": "first_batch_s",
    "samples/s": "samples_per_s",
    "wait": lambda row: f"{row['wait_share']:.1%}",
    "requests per file": "requests_per_file",
    "requests of meta/": "opening_requests",
    "fetched over needed": "fetched_over_needed",
}


def run(quick: bool) -> Figures:
    """Measure, print the table, and return the figures."""
    spec = replace(_SPEC, episodes=200) if quick else _SPEC
    root = BenchData("versions-small" if quick else "versions", spec).open()
    old = create_once(root.with_name(f"{root.name}-v21"), partial(copy_as_v21, root))
    return measure(old, root, LINK, rounds=1 if quick else _ROUNDS)


def measure(old: Path, new: Path, link: Script, *, rounds: int) -> Figures:
    """Measure the v2.1 and the v3.0 files of one dataset, print the table, return the figures."""
    need = measure_need(new)
    roots = {"v3.0": new, "v2.1": old}
    kinds = ("data/**/*.parquet", "videos/**/*.mp4")
    files = {v: sum(1 for kind in kinds for _ in root.glob(kind)) for v, root in roots.items()}
    rows: list[Figures] = []
    with serve_files(new) as new_server, serve_files(old) as old_server:
        servers = {"v3.0": new_server, "v2.1": old_server}
        rate = 0.0
        for consumer in ("full speed", "{:.0f} samples/s"):
            stream = partial(stream_epochs, link=link, need=need, samples_per_s=rate, epochs=1)
            runs = {version: partial(stream, server) for version, server in servers.items()}
            for version, found in run_rounds(runs, rounds).items():
                row = _summarize([epoch for (epoch,) in found], files[version])
                rows.append(row | {"version": version, "consumer": consumer.format(rate)})
            rate = min(link_capacity(link, need), *(row["samples_per_s"] for row in rows)) / 2
    fast_new, fast_old, paced_new, paced_old = rows
    figures: Figures = {
        "link": link.to_dict(),
        "need": need,
        "files": files,
        "rounds": rounds,
        "rows": rows,
        "v21_over_v30": {
            "first_batch": fast_old["first_batch_s"] / fast_new["first_batch_s"],
            "samples_per_s": fast_old["samples_per_s"] / fast_new["samples_per_s"],
            # The time that an epoch takes beyond the consumer's own, as a share of the epoch.
            "wait_difference": paced_old["wait_share"] - paced_new["wait_share"],
            "wait": (paced_old["wait_share"] + 1e-3) / (paced_new["wait_share"] + 1e-3),
        },
    }
    print(f"{Table.of(rows, _COLUMNS).text()}\n{_summary(figures)}", flush=True)
    return figures


def _summarize(epochs: Sequence[Figures], num_files: int) -> Figures:
    """Return the medians over the rounds, and the largest numbers of requests."""
    requests = max(epoch["video_requests"] + epoch["row_requests"] for epoch in epochs)
    return {
        **{name: median(epoch[name] for epoch in epochs) for name in _MEDIANS},
        "requests_per_file": requests / num_files,
        "opening_requests": max(epoch["opening_requests"] for epoch in epochs),
    }


def _summary(figures: Figures) -> str:
    ratios = figures["v21_over_v30"]
    return (
        f"v2.1 over v3.0: first batch {ratios['first_batch']:.2f}, rate at full speed "
        f"{ratios['samples_per_s']:.2f}, wait at half speed {ratios['wait']:.2f}."
    )


def _docs_block(repo: Path) -> str:
    figures = PUBLICATION.read(repo)
    need, files = figures["need"], figures["files"]
    link = f"{figures['link']['latency_s'] * 1000:.0f} ms"
    parts = [
        f"{need['episodes']:,} episodes of {need['cameras']} cameras, {files['v2.1']:,} files as "
        f"v2.1 and {files['v3.0']:,} as v3.0, behind {link}, on "
        f"{describe_cores(figures)}; medians of {figures['rounds']} interleaved rounds:",
        Table.of(figures["rows"], _COLUMNS).markdown(),
        _summary(figures),
    ]
    return "\n\n".join(parts)


PUBLICATION = Publication("versions.json", {DOCS: {"versions": _docs_block}})


def copy_as_v21(root: Path, target: Path) -> None:
    """Write a copy of a local dataset as v2.1: one Parquet file and MP4s for each episode.

    Videos must be of a codec that keeps frame order.
    """
    meta = LeRobotDatasetMetadata("copy/v21", root=root)
    starts, lengths = meta.episodes["dataset_from_index"], meta.episodes["length"]
    for path, group in groupby(range(meta.total_episodes), meta.get_data_file_path):
        table, episodes = pq.read_table(root / path), list(group)
        for episode in episodes:
            rows = table.slice(starts[episode] - starts[episodes[0]], lengths[episode])
            pq.write_table(rows, _place(target, config.V2_DATA_PATH, episode))
    for key in meta.video_keys:
        starts_s = meta.episodes[f"videos/{key}/from_timestamp"]
        file_of = partial(meta.get_video_file_path, vid_key=key)
        for path, group in groupby(range(meta.total_episodes), file_of):
            parts = [
                VideoPart(
                    path=_place(target, config.V2_VIDEO_PATH, episode, key),
                    start_frame=round(starts_s[episode] * meta.fps),
                    num_frames=int(lengths[episode]),
                    reorder_frames=0,
                )
                for episode in group
            ]
            split_videos(root / path, parts, rate=frame_rate(meta.fps))
    _write_meta(meta, root, target)


def _place(target: Path, template: str, episode: int, key: str = "") -> Path:
    """Return the path of an episode's file, in a folder that exists."""
    chunk = episode // config.CHUNKS_SIZE
    path = target / template.format(episode_chunk=chunk, episode_index=episode, video_key=key)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_meta(meta: LeRobotDatasetMetadata, root: Path, target: Path) -> None:
    paths = {"data_path": config.V2_DATA_PATH, "video_path": config.V2_VIDEO_PATH}
    info = meta.info.to_dict() | {"codebase_version": "v2.1"} | paths
    for name in ("data_files_size_in_mb", "video_files_size_in_mb"):
        del info[name]
    files = sorted(root.glob("meta/episodes/*/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    names = ("episode_index", "tasks", "length")
    lines: dict[str, list[Any]] = {
        config.V2_TASKS_PATH: [
            {"task_index": n, "task": text} for n, text in enumerate(meta.tasks)
        ],
        config.V2_EPISODES_PATH: [{name: row[name] for name in names} for row in rows],
        config.V2_STATS_PATH: [
            {"episode_index": row["episode_index"], "stats": _stats_of(row)} for row in rows
        ],
    }
    (target / "meta").mkdir()
    (target / config.INFO_PATH).write_text(json.dumps(info, indent=4))
    for path, records in lines.items():
        (target / path).write_text("".join(json.dumps(record) + "\n" for record in records))


def _stats_of(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the statistics in a row of v3.0's episode table, without quantiles."""
    stats: dict[str, dict[str, Any]] = {}
    for column, value in row.items():
        if column.startswith("stats/") and (name := column.rpartition("/")[2]) in MOMENTS:
            stats.setdefault(column.split("/")[1], {})[name] = value
    return stats
