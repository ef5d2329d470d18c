# SPDX-License-Identifier: Apache-2.0
"""`bench remote` and `bench versions`: datasets on a web server, behind a proxy.

The proxy has latency and limited bandwidth. Every stream begins with an empty cache. A consumer
takes batches at full speed, or at half of that rate and at most half of what the link can carry.

`bench remote` streams two epochs three times, the last time with a lane for each episode of the
pool, instead of the default number of lanes. `bench versions` streams an epoch of a v2.1 dataset,
with three small files for each episode of two cameras, and of the same frames in v3.0.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count, groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from robostream import config
from robostream.bench import results
from robostream.bench.measure import Batch, BenchData, consume, run_rounds
from robostream.bench.processes import run_process
from robostream.bench.results import Column, Figures, Measured, Publication, Table
from robostream.byte_sizes import format_bytes
from robostream.decode import build_index
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import EpochPlan
from robostream.storage import LocalSource, write_bytes_atomic
from robostream.testing import Exchange, Script, serve_files, start_proxy
from robostream.tools import SynthSpec
from robostream.write import VideoPart, frame_rate, split_videos

Need = dict[str, int]  # what an epoch has to read
_LINK = Script(latency_s=0.02, bytes_per_s=200e6 / 8)
# Few different episodes, which are fast to make.
_FEW: dict[str, Any] = {"cameras": 2, "distinct": 16}
# High image quality makes the link the bottleneck, not the decoder: 37 KB a sample.
_SPEC = SynthSpec(
    episodes=96, min_frames=60, max_frames=100, crf=5, video_file_mb=20, data_file_mb=0.2, **_FEW
)
_VERSIONS_SPEC = SynthSpec(episodes=2000, min_frames=24, max_frames=40, width=96, height=96, **_FEW)
# Several pools, and a frame cache smaller than the dataset, as with a large dataset.
_POOL_SIZE = 16
_OPTIONS = {"episode_pool_size": _POOL_SIZE, "frame_cache_bytes": "512MiB"}
_BATCH_SIZE = 32
_COLUMNS: dict[str, Column] = {
    "consumer": "consumer",
    "lanes": "lanes",
    "epoch": "epoch",
    "first batch s": "first_batch_s",
    "samples/s": "samples_per_s",
    "wait": "wait_share",
    "fetched over needed": "fetched_over_needed",
    "requests": "requests_per_episode_and_camera",
    "for cuts": "requests_for_cuts",
    "for rows": "row_requests",
}
_MEDIANS = ("first_batch_s", "samples_per_s", "wait_share", "fetched_over_needed")
_VERSIONS_COLUMNS: dict[str, Column] = {
    "version": "version",
    "consumer": "consumer",
    "first batch, s": "first_batch_s",
    "samples/s": "samples_per_s",
    "wait": lambda row: f"{row['wait_share']:.1%}",
    "requests per file": "requests_per_file",
    "requests of meta/": "opening_requests",
    "fetched over needed": "fetched_over_needed",
}


def run(quick: bool) -> Measured:
    """Measure one dataset."""
    spec = replace(_SPEC, episodes=64) if quick else _SPEC
    return measure(BenchData("remote-small" if quick else "remote", spec).open(), _LINK)


def measure(root: Path, link: Script) -> Measured:
    """Measure a local dataset behind a link."""
    need = measure_need(root)
    with serve_files(root) as server:
        stream = partial(stream_epochs, server, link, need)
        fast = stream(samples_per_s=0.0)
        rate = _half_rate(link, need, fast)
        paced = stream(samples_per_s=rate)
        whole = stream(samples_per_s=rate, lanes=_POOL_SIZE)
    at_rate, capacity = f"{rate:.0f} samples/s", _link_capacity(link, need)
    runs = {"full speed": fast, at_rate: paced, f"{at_rate}, whole episodes": whole}
    rows = [
        {**epoch, "consumer": name, "epoch": number}
        for name, epochs in runs.items()
        for number, epoch in enumerate(epochs, start=1)
    ]
    text = (
        f"{Table.of(rows, _COLUMNS).text()}\n"
        f"needed: {format_bytes(need['video_bytes'])} of packets and "
        f"{format_bytes(need['row_bytes'])} of row groups; "
        f"the link carries {capacity:.0f} samples/s\n"
        "requests: for video files, per episode and camera, without one for each cut through an "
        "episode\n"
        "wait: share of the time from the first batch on that the consumer waited for data\n"
        "whole episodes: a lane for each episode of the pool, not the default number of lanes"
    )
    figures = {
        "link": link.to_dict(),
        "settings": _OPTIONS,
        "need": need,
        "link_samples_per_s": capacity,
        "link_over_need": capacity / rate,
        "fast": fast,
        "paced": paced,
        "paced_whole_episodes": whole,
    }
    return figures, text


def run_versions(quick: bool) -> Measured:
    """Measure a v2.1 and a v3.0 dataset."""
    spec = replace(_VERSIONS_SPEC, episodes=200) if quick else _VERSIONS_SPEC
    data = BenchData("versions-small" if quick else "versions", spec)
    old = replace(data, variant=copy_as_v21).open()
    return measure_versions(old, data.open(), _LINK, rounds=1 if quick else 3)


def measure_versions(old: Path, new: Path, link: Script, *, rounds: int) -> Measured:
    """Measure the v2.1 and the v3.0 files of one dataset."""
    need, roots = measure_need(new), {"v3.0": new, "v2.1": old}
    kinds = ("data/**/*.parquet", "videos/**/*.mp4")
    files = {v: sum(1 for kind in kinds for _ in root.glob(kind)) for v, root in roots.items()}
    rows: list[Figures] = []
    with serve_files(new) as new_server, serve_files(old) as old_server:
        rate = 0.0
        for consumer in ("full speed", "{:.0f} samples/s"):
            stream = partial(stream_epochs, link=link, need=need, samples_per_s=rate, epochs=1)
            runs = {"v3.0": partial(stream, new_server), "v2.1": partial(stream, old_server)}
            for version, found in run_rounds(runs, rounds).items():
                epochs = [epoch for (epoch,) in found]
                requests = max(epoch["video_requests"] + epoch["row_requests"] for epoch in epochs)
                rows.append(
                    {name: median(epoch[name] for epoch in epochs) for name in _MEDIANS}
                    | {
                        "requests_per_file": requests / files[version],
                        "opening_requests": max(epoch["opening_requests"] for epoch in epochs),
                        "version": version,
                        "consumer": consumer.format(rate),
                    }
                )
            rate = _half_rate(link, need, rows)
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
    return figures, f"{Table.of(rows, _VERSIONS_COLUMNS).text()}\n{_versions_summary(figures)}"


def _versions_summary(figures: Figures) -> str:
    ratios = figures["v21_over_v30"]
    return (
        f"v2.1 over v3.0: first batch {ratios['first_batch']:.2f}, rate at full speed "
        f"{ratios['samples_per_s']:.2f}, wait at half speed {ratios['wait']:.2f}."
    )


def _docs_block(repo: Path) -> str:
    figures = PUBLICATION.read(repo)
    need, files = figures["need"], figures["files"]
    about = (
        f"{need['episodes']:,} episodes of {need['cameras']} cameras, {files['v2.1']:,} files as "
        f"v2.1 and {files['v3.0']:,} as v3.0, behind {figures['link']['latency_s'] * 1000:.0f} ms, "
        f"on {results.describe_cores(figures)}; medians of {figures['rounds']} interleaved rounds:"
    )
    table = Table.of(figures["rows"], _VERSIONS_COLUMNS).markdown()
    return f"{about}\n\n{table}\n\n{_versions_summary(figures)}"


PUBLICATION = Publication("versions.json", {results.DOCS: {"versions": _docs_block}})


def measure_need(root: Path) -> Need:
    """Return what an epoch of a local dataset has to read.

    Bytes are those of the packets, by the sample tables of the videos, and of the row groups, by
    the footers of the data files.
    """
    meta = LeRobotDatasetMetadata("bench/remote", root=root)
    footers = map(pq.read_metadata, root.glob("data/**/*.parquet"))
    groups = (footer.row_group(n) for footer in footers for n in range(footer.num_row_groups))
    columns = (group.column(n) for group in groups for n in range(group.num_columns))
    indices = [build_index(LocalSource(path)) for path in root.glob("videos/**/*.mp4")]
    return {
        "frames": meta.total_frames,
        "episodes": meta.total_episodes,
        "cameras": len(meta.video_keys),
        "video_bytes": sum(int(index.sizes.sum(dtype=np.int64)) for index in indices),
        "row_bytes": sum(column.total_compressed_size for column in columns),
    }


def _link_capacity(link: Script, need: Need) -> float:
    """Return the samples/s that a link can carry. Pure."""
    return link.bytes_per_s * need["frames"] / (need["video_bytes"] + need["row_bytes"])


def _half_rate(link: Script, need: Need, streamed: Iterable[Figures]) -> float:
    """Return half of the samples/s that were streamed and that the link can carry. Pure."""
    rates = [float(one["samples_per_s"]) for one in streamed]
    return min(_link_capacity(link, need), *rates) / 2


def stream_epochs(
    server: str, link: Script, need: Need, *, samples_per_s: float, epochs: int = 2, **options: int
) -> list[Figures]:
    """Stream epochs in a process of its own, with an empty cache; return the figures of each."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        measured: list[Figures] = run_process(
            measure_epochs,
            # A cache of its own: files kept by earlier runs, such as video indices, must not help.
            environment={"ROBOSTREAM_CACHE": folder},
            server=server,
            link=link,
            options={"cache_dir": f"{folder}/cache", **_OPTIONS, **options},
            samples_per_s=samples_per_s,
            epochs=epochs,
        )
    needed_bytes = need["video_bytes"] + need["row_bytes"]
    for epoch in measured:
        for_cuts = min(epoch["cuts"] * need["cameras"], epoch["video_requests"])
        requests = (epoch["video_requests"] - for_cuts) / (need["episodes"] * need["cameras"])
        epoch["fetched_over_needed"] = epoch["fetched_bytes"] / needed_bytes
        epoch["requests_per_episode_and_camera"] = requests
        epoch["requests_for_cuts"] = for_cuts
    return measured


def measure_epochs(
    server: str, link: Script, options: dict[str, Any], samples_per_s: float, epochs: int
) -> list[Figures]:
    """Stream the epochs in this process; return the figures of each."""
    import torch

    torch.set_num_threads(1)
    with start_proxy(server, link) as proxy:
        begin = time.perf_counter()
        stream = StreamingLeRobotDataset(
            "bench/remote", root=proxy.url, return_uint8=True, **options
        )
        opened = {"cuts": count_cuts(stream.plan(0)), "lanes": stream.lanes}
        opened_s = time.perf_counter() - begin
        seen = len(proxy.journal())
        opened["opening_requests"] = seen
        found = []
        begin = time.perf_counter() - opened_s
        with closing(StreamingDataLoader(stream, _BATCH_SIZE)) as loader:
            for _ in range(epochs):
                figures = _epoch_figures(loader, begin, samples_per_s)
                exchanges = proxy.journal(seen)
                seen += len(exchanges)
                found.append(opened | figures | sum_traffic(exchanges))
                begin = time.perf_counter()
    return found


def _epoch_figures(loader: StreamingDataLoader, begin: float, samples_per_s: float) -> Figures:
    """Consume an epoch, at a limited rate if one is given; measure from the first batch on."""
    numbers = count()

    def on_batch(_: Batch) -> None:
        if next(numbers) and samples_per_s:  # not after the first batch
            time.sleep(_BATCH_SIZE / samples_per_s)

    opened_s = time.perf_counter() - begin
    times = consume(loader, on_batch=on_batch)
    seconds = times.end_s - times.begin_s
    return {
        "first_batch_s": opened_s + times.arrivals_s[0],
        "samples_per_s": times.num_measured / seconds,
        "wait_share": sum(times.waits_s[1:]) / seconds,
        "stats": loader.stats(),
    }


def count_cuts(plan: EpochPlan) -> int:
    """Return how many positions inside episodes an epoch's order starts reading at. Pure.

    Lanes start and end inside episodes, and each is entered somewhere on its circle.
    """
    starts: set[int] = set()
    for number in plan.lane_spans()[0].tolist():
        lane, start = plan.lane(number)
        starts |= {start, start + lane.entry % lane.length}
    return len(starts - set(plan.line.starts.tolist()))


def sum_traffic(exchanges: Iterable[Exchange]) -> dict[str, int]:
    """Return the requests and bytes of video files, data files and everything else. Pure."""
    requests, sent = Counter[str](), Counter[str]()
    for exchange in exchanges:
        folder = exchange.path.strip("/").split("/")[0]
        kind = {"videos": "video", "data": "row"}.get(folder, "meta")
        requests[kind] += 1
        sent[kind] += exchange.sent_bytes
    return {
        **{f"{kind}_requests": requests[kind] for kind in ("video", "row", "meta")},
        "fetched_bytes": sent["video"] + sent["row"],
        "meta_bytes": sent["meta"],
    }


def copy_as_v21(root: Path, target: Path) -> None:
    """Write a copy of a local dataset as v2.1: one Parquet file and MP4s for each episode.

    Videos must be of a codec that keeps frame order. Statistics, which streams do not read, are
    left out.
    """
    meta = LeRobotDatasetMetadata("copy/v21", root=root)
    starts, lengths = meta.episodes["dataset_from_index"], meta.episodes["length"]

    def place(template: str, episode: int, key: str = "") -> Path:
        chunk = episode // config.CHUNKS_SIZE
        path = target / template.format(episode_chunk=chunk, episode_index=episode, video_key=key)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    for path, group in groupby(range(meta.total_episodes), meta.get_data_file_path):
        table, episodes = pq.read_table(root / path), list(group)
        for episode in episodes:
            rows = table.slice(starts[episode] - starts[episodes[0]], lengths[episode])
            pq.write_table(rows, place(config.V2_DATA_PATH, episode))
    for key in meta.video_keys:
        starts_s = meta.episodes[f"videos/{key}/from_timestamp"]
        file_of = partial(meta.get_video_file_path, vid_key=key)
        for path, group in groupby(range(meta.total_episodes), file_of):
            parts = [
                VideoPart(
                    path=place(config.V2_VIDEO_PATH, episode, key),
                    start_frame=round(starts_s[episode] * meta.fps),
                    num_frames=int(lengths[episode]),
                    reorder_frames=0,
                )
                for episode in group
            ]
            split_videos(root / path, parts, rate=frame_rate(meta.fps))
    paths: dict[str, Any] = {"data_path": config.V2_DATA_PATH, "video_path": config.V2_VIDEO_PATH}
    info = replace(meta.info, codebase_version="v2.1", **paths)
    tables: dict[str, Iterable[Figures]] = {
        config.V2_TASKS_PATH: ({"task_index": n, "task": t} for n, t in enumerate(meta.tasks)),
        config.V2_EPISODES_PATH: (
            {"episode_index": n, "tasks": row["tasks"], "length": int(row["length"])}
            for n, row in enumerate(meta.episodes)
        ),
    }
    write_bytes_atomic(target / config.INFO_PATH, info.to_json().encode())
    for file, records in tables.items():
        write_bytes_atomic(target / file, "".join(f"{json.dumps(r)}\n" for r in records).encode())
