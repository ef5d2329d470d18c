# SPDX-License-Identifier: Apache-2.0
"""`bench remote`: a dataset on a web server, behind a proxy with latency and limited bandwidth.

Three streams of two epochs, each with an empty cache at first: one at full speed; one whose
consumer takes half of that rate and at most half of what the link can carry; and the same with a
lane for each episode of the pool, instead of the default number of lanes.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from robostream.bench.case import BenchData
from robostream.bench.measure import Batch, consume
from robostream.bench.processes import run_process
from robostream.bench.results import Figures
from robostream.bench.tables import Table
from robostream.byte_sizes import format_bytes
from robostream.decode import build_index
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import EpochPlan
from robostream.storage import LocalSource
from robostream.testing import Exchange, Script, serve_files, start_proxy
from robostream.tools import SynthSpec

LINK = Script(latency_s=0.02, bytes_per_s=200e6 / 8)
# High image quality makes the link the bottleneck, not the decoder: 37 KB a sample.
_SPEC = SynthSpec(
    episodes=96,
    min_frames=60,
    max_frames=100,
    cameras=2,
    crf=5,
    distinct=16,
    video_file_mb=20,
    data_file_mb=0.2,
)
# Several pools, and a frame cache smaller than the dataset, as with a large dataset.
_OPTIONS = {"episode_pool_size": 16, "frame_cache_bytes": "512MiB"}
_WHOLE_EPISODES = {"lanes": 16}
_BATCH_SIZE = 32
_EPOCHS = 2
_COLUMNS = {
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


def run(quick: bool) -> Figures:
    """Measure, print the table, and return the figures."""
    spec = replace(_SPEC, episodes=64) if quick else _SPEC
    return measure(BenchData("remote-small" if quick else "remote", spec).open(), LINK)


def measure(root: Path, link: Script) -> Figures:
    """Measure a local dataset behind a link, print the table, and return the figures."""
    need = measure_need(root)
    capacity = link_capacity(link, need)
    with serve_files(root) as server:
        stream = partial(stream_epochs, server, link, need)
        fast = stream(samples_per_s=0.0)
        rate = min(capacity, *(epoch["samples_per_s"] for epoch in fast)) / 2
        paced = stream(samples_per_s=rate)
        whole = stream(samples_per_s=rate, **_WHOLE_EPISODES)
    at_rate = f"{rate:.0f} samples/s"
    runs = {"full speed": fast, at_rate: paced, f"{at_rate}, whole episodes": whole}
    rows = [
        {**epoch, "consumer": name, "epoch": number}
        for name, epochs in runs.items()
        for number, epoch in enumerate(epochs, start=1)
    ]
    print(Table.of(rows, _COLUMNS).text(), flush=True)
    print(
        f"needed: {format_bytes(need['video_bytes'])} of packets and "
        f"{format_bytes(need['row_bytes'])} of row groups; "
        f"the link carries {capacity:.0f} samples/s\n"
        "requests: for video files, per episode and camera, without one for each cut through an "
        "episode\n"
        "wait: share of the time from the first batch on that the consumer waited for data\n"
        "whole episodes: a lane for each episode of the pool, not the default number of lanes"
    )
    return {
        "link": link.to_dict(),
        "settings": _OPTIONS,
        "need": need,
        "link_samples_per_s": capacity,
        "link_over_need": capacity / rate,
        "fast": fast,
        "paced": paced,
        "paced_whole_episodes": whole,
    }


def link_capacity(link: Script, need: dict[str, int]) -> float:
    """Return the samples/s that a link can carry. Pure."""
    return link.bytes_per_s * need["frames"] / (need["video_bytes"] + need["row_bytes"])


def measure_need(root: Path) -> dict[str, int]:
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


def stream_epochs(
    server: str,
    link: Script,
    need: dict[str, int],
    *,
    samples_per_s: float,
    epochs: int = _EPOCHS,
    **options: int,
) -> list[Figures]:
    """Stream epochs in a process of its own, with an empty cache; return the figures of each."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        opened, *measured = run_process(
            measure_epochs,
            # A cache of its own: files kept by earlier runs, such as video indices, must not help.
            environment={"ROBOSTREAM_CACHE": folder},
            server=server,
            link=link,
            options={"cache_dir": f"{folder}/cache", **_OPTIONS, **options},
            samples_per_s=samples_per_s,
            epochs=epochs,
        )
    return [_add_ratios(opened | epoch, need) for epoch in measured]


def measure_epochs(
    server: str, link: Script, options: dict[str, Any], samples_per_s: float, epochs: int
) -> list[Figures]:
    """Stream the epochs in this process; return figures after opening and after each epoch."""
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
        found = [opened | {"opening_requests": seen}]
        begin = time.perf_counter() - opened_s
        with closing(StreamingDataLoader(stream, _BATCH_SIZE)) as loader:
            for _ in range(epochs):
                figures = _epoch_figures(loader, begin, samples_per_s)
                exchanges = proxy.journal(seen)
                seen += len(exchanges)
                found.append(figures | sum_traffic(exchanges))
                begin = time.perf_counter()
    return found


def _epoch_figures(loader: StreamingDataLoader, begin: float, samples_per_s: float) -> Figures:
    """Consume an epoch, at a limited rate if one is given; measure from the first batch on."""
    first_waits_s: list[float] = []

    def on_batch(batch: Batch) -> None:
        if not first_waits_s:
            first_waits_s.append(loader.stats()["epoch_dataloading_s"])
        elif samples_per_s:
            time.sleep(_BATCH_SIZE / samples_per_s)

    opened_s = time.perf_counter() - begin
    times = consume(loader, on_batch=on_batch)
    seconds = times.end_s - times.begin_s
    stats = loader.stats()
    return {
        "first_batch_s": opened_s + times.arrivals_s[0],
        "samples_per_s": times.num_measured / seconds,
        "wait_share": (stats["epoch_dataloading_s"] - first_waits_s[0]) / seconds,
        "stats": stats,
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


def _add_ratios(epoch: Figures, need: dict[str, int]) -> Figures:
    videos = need["episodes"] * need["cameras"]
    needed_bytes = need["video_bytes"] + need["row_bytes"]
    for_cuts = min(epoch["cuts"] * need["cameras"], epoch["video_requests"])
    return epoch | {
        "fetched_over_needed": epoch["fetched_bytes"] / needed_bytes,
        "requests_per_episode_and_camera": (epoch["video_requests"] - for_cuts) / videos,
        "requests_for_cuts": for_cuts,
    }
