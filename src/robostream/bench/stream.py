# SPDX-License-Identifier: Apache-2.0
"""`bench stream`: dataloading at one setting, from a folder, the Hub or a bucket.

File names and JSON fields are those of LeRobot's benchmark_streaming.py, and a few more.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import time
from statistics import mean

import numpy as np
import torch

from robostream.bench.floor import decode_floor
from robostream.bench.measure import Batch, consume, latency_figures, limit_time
from robostream.bench.processes import MemoryCurves, sample_memory
from robostream.bench.results import Figures, ensure_writable, machine, save_run
from robostream.bench.stream_settings import StreamSettings, settings_of
from robostream.errors import RobostreamError, SelectionError
from robostream.loader import (
    StreamingDataLoader,
    StreamingLeRobotDataset,
    frame_budget,
    local_ranks,
)
from robostream.meta import LeRobotDatasetMetadata, image_shape, location_of
from robostream.storage import TRAFFIC
from robostream.tools import uniform_distinct

DEFINITIONS = {
    "frame": "one sample: one time step of an episode with all its cameras and windows",
    "image": "one frame of one camera; a sample of mode sarm has 8 of each camera",
    "samples_per_s": "samples that this process received after the warm-up, over the seconds "
    "since the last batch of the warm-up; waits at the ends of epochs included",
    "frames_per_s_node": "the same number: one process of this benchmark runs on a node; with "
    "several (ranks_per_node), add up theirs",
    "images_per_s": "samples_per_s times the images of a sample",
    "floor_images_per_s": "images/s of decoding this dataset's files alone, in order, in as many "
    "processes as workers, one thread each, without colour conversion, measured afterwards",
    "first_batch_latency_s": "from the request of the first batch to its arrival; opening the "
    "metadata and the loader took open_s before",
    "sample_latency_ms": "time between two batches, over the samples of a batch",
    "batch_wait_ms": "time from the request of a batch to its arrival",
    "samples_per_s_by_stretch": "samples/s in each stretch_s seconds since the request of the "
    "first batch",
    "amplification": "images decoded over images delivered, after the warm-up",
    "worker_time": "steady_time_s times the workers; *_pct_worker_time are shares of it, and "
    "other_pct_worker_time is the rest: rows, waiting for the consumer or for each other",
    "limited_by": "what limits the last epoch measured, with the shares of time that show it, and "
    "what would help",
    "shuffle_randomness_frac": "distinct episodes per batch over those expected of a uniform "
    "shuffle of the dataset",
    "peak_rss_gb": "memory of all processes, shared pages counted in each process, in GB",
    "peak_pss_gb": "the same with shared pages counted once",
}
_TOLERANCE_S = 1e-3  # as in LeRobot's script
_WORK = ("fetch", "decode", "convert", "copy")
_MOST_POINTS = 240
# Settings that are arguments of the dataset.
_PASSED = ["root", "revision", "data_files_root", "episode_pool_size", "video_decoder_cache_size"]
_PASSED += ["video_decode_device", "frame_cache_bytes", "return_uint8"]


def run(args: argparse.Namespace) -> int:
    """Measure one setting, print it, and write its figures."""
    ensure_writable(args.out_dir)
    name, figures = measure_stream(settings_of(args))
    path = save_run(args.out_dir, name, figures)
    print(describe(figures))
    print(f"written to {path}", flush=True)
    return 0


def measure_stream(settings: StreamSettings) -> tuple[str, Figures]:
    """Return the name of a result and its figures. Blocks until the measurement is done."""
    device = _device(settings)
    begin = time.perf_counter()
    with sample_memory() as memory:
        stream = _open_dataset(settings)
        loader = StreamingDataLoader(
            stream,
            settings.batch_size,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            drop_last=True,
            pin_memory=device.type == "cuda" and settings.video_decode_device == "cpu",
        )
        opened_s = time.perf_counter() - begin
        try:
            figures = _consume(loader, stream.meta, settings, device)
        finally:
            loader.close()
    wallclock_s = time.perf_counter() - begin
    floor = _floor(stream.meta, max(loader.num_workers, 1), settings.floor_s)
    name = settings.result_name(workers=loader.num_workers, prefetch=loader.prefetch_factor or 0)
    if stream.world_size > 1:
        name = f"{name}_r{stream.rank}of{stream.world_size}"
    return name, {
        **settings.figures(),
        **_loader_figures(loader, stream),
        "device": device.type,
        **figures,
        "floor_images_per_s": floor,
        "open_s": opened_s,
        "wallclock_s": wallclock_s,
        **_memory_figures(memory),
        "machine": machine(),
        "definitions": DEFINITIONS,
    }


def _device(settings: StreamSettings) -> torch.device:
    wanted = settings.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(wanted)
    if "cuda" in (device.type, settings.video_decode_device) and not torch.cuda.is_available():
        raise SelectionError(
            f"--device {settings.device} --video_decode_device {settings.video_decode_device}: "
            "want a CUDA GPU, found none that torch can use. Use a machine with a GPU and a CUDA "
            "build of torch, or choose cpu."
        )
    return device


def _open_dataset(settings: StreamSettings) -> StreamingLeRobotDataset:
    windows = None
    if settings.mode != "single":
        meta = LeRobotDatasetMetadata(settings.repo_id, settings.root, settings.revision)
        windows = settings.windows(meta.camera_keys)
    options = {name: getattr(settings, name) for name in _PASSED}
    return StreamingLeRobotDataset(
        settings.repo_id, delta_timestamps=windows, tolerance_s=_TOLERANCE_S, **options
    )


def _consume(
    loader: StreamingDataLoader,
    meta: LeRobotDatasetMetadata,
    settings: StreamSettings,
    device: torch.device,
) -> Figures:
    """Take the batches of as many epochs as needed; return rates, mixing and the workers' time."""
    distinct: list[int] = []
    before = loader.stats()

    def on_batch(batch: Batch) -> None:
        nonlocal before
        for value in batch.values():  # as a trainer does
            if isinstance(value, torch.Tensor):
                value.to(device, non_blocking=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        distinct.append(len(np.unique(np.asarray(batch["episode_index"]))))
        if len(distinct) == settings.warmup_batches:
            before = loader.stats()

    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    times = consume(
        limit_time(batches, settings.at_most_s, from_first_batch=False),
        warmup_batches=settings.warmup_batches,
        max_batches=settings.warmup_batches + settings.num_batches,
        on_batch=on_batch,
    )
    if not times.num_measured:
        raise RobostreamError(
            f"no frame was measured: {len(times.samples)} batches arrived, and the first "
            f"{settings.warmup_batches} are the warm-up. Set --num_batches to 1 or more."
        )
    uniform = uniform_distinct(meta.episodes["length"], settings.batch_size)
    rates = latency_figures(times, settings.batch_size)
    images = settings.images_per_sample(len(meta.camera_keys))
    worker_s = max(loader.num_workers, 1) * rates["steady_time_s"]
    return {
        "episodes_per_batch_mean": mean(distinct),
        "episodes_per_batch_uniform": uniform,
        "shuffle_randomness_frac": mean(distinct) / uniform,
        **rates,
        "frames_per_s_node": rates["samples_per_s"],
        "images_per_sample": images,
        "images_per_s": rates["samples_per_s"] * images,
        **_work_figures(before, loader.stats(), worker_s),
    }


def _work_figures(before: Figures, after: Figures, worker_s: float) -> Figures:
    """Return what the workers did since the warm-up and how they spent their time."""
    done = {name: value - before.get(name, 0.0) for name, value in after.items()}
    shares = {f"{kind}_pct_worker_time": 100 * done[f"{kind}_s"] / worker_s for kind in _WORK}
    looked_up = done["file_hits"] + done["file_misses"]
    return {
        **{f"{kind}_s_total": done[f"{kind}_s"] for kind in _WORK},
        **shares,
        "other_pct_worker_time": max(0.0, 100 - sum(shares.values())),
        "images_decoded": done["images_decoded"],
        "images_delivered": done["images_delivered"],
        "amplification": done["images_decoded"] / max(done["images_built"], 1),
        "video_decoder_cache": {
            "hits": done["file_hits"],
            "misses": done["file_misses"],
            "evictions": done["file_evictions"],
            "hit_rate": done["file_hits"] / looked_up if looked_up else None,
        },
        "kept_pictures": {"hits": done["picture_hits"], "evictions": done["picture_evictions"]},
        # Since the start; zeros for local files.
        "traffic": {name: after.get(name, 0.0) for name in TRAFFIC},
    }


def _loader_figures(loader: StreamingDataLoader, stream: StreamingLeRobotDataset) -> Figures:
    meta, frames = stream.meta, frame_budget(loader)
    shapes = [list(image_shape(meta.features[key])) for key in meta.camera_keys]
    ranks = local_ranks(stream.world_size)
    return {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "buffer_size": None,
        "num_cameras": len(meta.camera_keys),
        "image_shape": shapes[0] if shapes else None,
        "fps": stream.fps,
        "frame_cache": {"bytes": frames.nbytes, "reason": frames.reason},
        "limited_by": loader.limited_by(),
        "shuffle": {
            "seed": stream.seed,
            "shuffle": stream.shuffle,
            "episode_pool_size": stream.episode_pool_size,
            "lanes": stream.lanes,
        },
        "dataset": {"episodes": stream.num_episodes, "frames": stream.num_frames},
        "node": {
            "hostname": socket.gethostname(),
            "rank": stream.rank,
            "world_size": stream.world_size,
            "num_nodes": stream.world_size // ranks,
            "ranks_per_node": ranks,
        },
    }


def _floor(meta: LeRobotDatasetMetadata, processes: int, seconds: float) -> float | None:
    """Return the decode floor in images/s; None for remote files, or if `seconds` is 0.

    A dataset with videos and with images in Parquet is measured by its videos.
    """
    root = location_of(meta).local_root
    if root is None or not seconds or not meta.camera_keys:
        return None
    pattern = "videos/**/*.mp4" if meta.video_keys else "data/**/*.parquet"
    files = sorted(map(str, root.glob(pattern)))
    return decode_floor(files, processes, at_most_s=seconds) if files else None


def _memory_figures(memory: MemoryCurves) -> Figures:
    return {
        "peak_rss_gb": max(size for _, size in memory.rss) / 1e9,
        "peak_pss_gb": max(size for _, size in memory.pss) / 1e9,
        "rss_gb_over_time": _thin(memory.rss),
        "pss_gb_over_time": _thin(memory.pss),
    }


def _thin(points: list[tuple[float, int]]) -> list[list[float]]:
    """Return a limited number of points of a curve, as [seconds, GB]. Pure."""
    step = -(-len(points) // _MOST_POINTS)
    return [[round(at, 1), round(size / 1e9, 3)] for at, size in points[::step]]


def describe(figures: Figures) -> str:
    """Return the most important figures in a few lines. Pure."""
    floor = figures["floor_images_per_s"]
    over = f", {figures['images_per_s'] / floor:.2f} times raw decode speed" if floor else ""
    waits = ", ".join(f"{figures[f'p{p}_batch_wait_ms']:.1f}" for p in (50, 95, 99))
    work = ("decode", "fetch", "convert", "other")
    shares = ", ".join(f"{figures[f'{kind}_pct_worker_time']:.0f} % {kind}" for kind in work)
    return (
        f"{figures['root'] or figures['repo_id']} ({figures['source']}): {figures['mode']}, "
        f"batches of {figures['batch_size']}, {figures['num_workers']} workers, "
        f"pool {figures['episode_pool_size']}\n"
        f"  {figures['samples_per_s']:,.0f} samples/s (frames/s of this node), "
        f"{figures['images_per_s']:,.0f} images/s{over}\n"
        f"  first batch after {figures['first_batch_latency_s']:.2f} s; waits of {waits} ms "
        "(median, 95th and 99th percentile)\n"
        f"  lowest rate in 2 s of the first 20 s: {figures['start_lowest_samples_per_s']:,.0f} "
        f"samples/s, median {figures['start_median_samples_per_s']:,.0f}\n"
        f"  workers: {shares}; {figures['amplification']:.2f} images decoded per image delivered\n"
        f"  {figures['episodes_per_batch_mean']:.1f} episodes per batch, "
        f"{figures['shuffle_randomness_frac']:.2f} of a uniform shuffle; "
        f"peak memory {figures['peak_pss_gb']:.2f} GB\n"
        f"  limited by {figures['limited_by']}"
    )
