# SPDX-License-Identifier: Apache-2.0
"""A dataset behind a network: a web server, and before it a proxy with latency and bandwidth.

Three streams of two epochs each, each with a cache that is empty at first: one as fast as it goes;
one whose consumer takes half of that and at most half of what the link can carry; and the same with
a lane for each episode of the pool, in place of the default number of lanes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from robostream import config
from robostream.bench.datasets import bench_dataset
from robostream.bench.environment import machine
from robostream.bench.remote_need import Need, measure_need, sum_traffic
from robostream.bench.table import format_table
from robostream.byte_sizes import format_bytes
from robostream.testing import Proxy, Script, serve_files, start_proxy
from robostream.tools import SynthSpec

_LINK = Script(latency_s=0.02, bytes_per_s=200e6 / 8)
# So good a picture that the link, not the decoder, is what limits: 37 KB a sample.
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
# Several pools in the dataset, and no memory for all decoded pictures: as a large one is read.
_OPTIONS = {"episode_pool_size": 16, "frame_cache_bytes": "512MiB"}
_WHOLE_EPISODES = {"lanes": 16}
_BATCH_SIZE = 32
_EPOCHS = 2


def run(quick: bool) -> dict[str, Any]:
    """Measure, print the table, and return the figures."""
    config.quiet_encoders()
    spec = dataclasses.replace(_SPEC, episodes=64) if quick else _SPEC
    return measure(bench_dataset("remote-small" if quick else "remote", spec), _LINK)


def measure(root: Path, link: Script) -> dict[str, Any]:
    """Measure a local dataset as if it lay behind a link, print the table, return the figures."""
    need = measure_need(root)
    capacity = link.bytes_per_s * need.frames / need.nbytes
    with serve_files(root) as server, start_proxy(server, link) as proxy:
        fast = _stream(proxy, need, samples_per_s=0.0)
        pace = min(capacity, *(epoch["samples_per_s"] for epoch in fast)) / 2
        paced = _stream(proxy, need, samples_per_s=pace)
        whole = _stream(proxy, need, samples_per_s=pace, **_WHOLE_EPISODES)
    at_pace = f"{pace:.0f} samples/s"
    runs = {"as fast as it goes": fast, at_pace: paced, f"{at_pace}, whole episodes": whole}
    print(_table(runs), flush=True)
    print(
        f"needed: {format_bytes(need.video_bytes)} of packets and "
        f"{format_bytes(need.row_bytes)} of row groups; "
        f"the link carries {capacity:.0f} samples/s\n"
        "requests: for video files, per episode and camera; one more for each cut through an "
        "episode, counted apart\n"
        "wait: share of the time from the first batch on that the consumer waited for data\n"
        "whole episodes: a lane for each episode of the pool; else the default number of lanes"
    )
    return {
        "machine": machine(),
        "link": link.to_dict(),
        "settings": _OPTIONS,
        "need": dataclasses.asdict(need),
        "link_samples_per_s": capacity,
        "link_over_need": capacity / pace,
        "fast": fast,
        "paced": paced,
        "paced_whole_episodes": whole,
    }


def _stream(
    proxy: Proxy, need: Need, *, samples_per_s: float, **options: int
) -> list[dict[str, Any]]:
    """Stream the epochs in a process of its own and return the figures of each."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        request = {
            "root": proxy.url,
            "cache_dir": f"{folder}/cache",
            "options": _OPTIONS | options,
            "batch_size": _BATCH_SIZE,
            "samples_per_s": samples_per_s,
        }
        command = [sys.executable, "-m", "robostream.bench.remote_run", json.dumps(request)]
        # What earlier runs kept, indices for one, must not help this one.
        environment = os.environ | {"ROBOSTREAM_CACHE": folder}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            opened, seen = _next_figures(process), len(proxy.journal())
            epochs = []
            for _ in range(_EPOCHS):
                _go_on(process)
                figures, exchanges = _next_figures(process), proxy.journal(seen)
                seen += len(exchanges)
                traffic = dataclasses.asdict(sum_traffic(exchanges))
                epochs.append(_add_ratios({**opened, **figures, **traffic}, need))
            _go_on(process)
    return epochs


def _next_figures(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the measuring process ended early; its message is above")
    figures: dict[str, Any] = json.loads(line)
    return figures


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _add_ratios(epoch: dict[str, Any], need: Need) -> dict[str, Any]:
    videos = need.episodes * need.cameras
    for_cuts = min(epoch["cuts"] * need.cameras, epoch["video_requests"])
    return epoch | {
        "fetched_over_needed": epoch["fetched_bytes"] / need.nbytes,
        "requests_per_episode_and_camera": (epoch["video_requests"] - for_cuts) / videos,
        "requests_for_cuts": for_cuts,
    }


def _table(runs: dict[str, list[dict[str, Any]]]) -> str:
    header = ["consumer", "lanes", "epoch", "first batch s", "samples/s", "wait"]
    header += ["fetched over needed", "requests", "for cuts", "for rows"]
    rows = [
        [
            name,
            epoch["lanes"],
            number,
            epoch["first_batch_s"],
            epoch["samples_per_s"],
            epoch["wait_share"],
            epoch["fetched_over_needed"],
            epoch["requests_per_episode_and_camera"],
            epoch["requests_for_cuts"],
            epoch["row_requests"],
        ]
        for name, epochs in runs.items()
        for number, epoch in enumerate(epochs, start=1)
    ]
    return format_table(header, rows)
