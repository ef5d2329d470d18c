# SPDX-License-Identifier: Apache-2.0
"""`bench stream`: dataloading at one setting, from a folder, the Hub or a bucket.

Flags, file names and JSON fields are those of LeRobot's benchmark_streaming.py, and a few more.
"""

from __future__ import annotations

import argparse
import itertools
import re
import socket
import time
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from robostream import config
from robostream.bench.measure import SARM_S, Batch, consume, latency_figures, limit_time
from robostream.bench.processes import decode_floor, sample_memory
from robostream.bench.results import Figures, ensure_writable, machine, save_run
from robostream.errors import RobostreamError, SelectionError
from robostream.meta import LeRobotDatasetMetadata, image_shape, location_of
from robostream.storage import TRAFFIC, as_location, explicit_root, redact
from robostream.tools import uniform_distinct

if TYPE_CHECKING:  # the flags are defined without torch
    import torch

    from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset

WARMUP_BATCHES = 5
OUT_DIR = Path("benchmarks/streaming/results")
# The settings that are written beside the figures, and those that are arguments of the dataset.
_WRITTEN = ["mode", "batch_size", "num_batches", "warmup_batches"]
_SHARED = ["episode_pool_size", "video_decode_device", "return_uint8"]
_PASSED = ["root", "revision", "data_files_root", "video_decoder_cache_size", "frame_cache_bytes"]
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
_ORDER = ("seed", "shuffle", "episode_pool_size", "lanes")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"want 0 or more, got {text}")
    return number


def _count_or_auto(text: str) -> int | None:
    return None if text == "auto" else _count(text)


_WORKERS_HELP = 'worker processes, or "auto" for the loader\'s default'
_MODE_HELP = "one frame of all cameras, or 8 steps 1 s apart of every camera and the action"
_FLOOR_HELP = (
    "seconds to measure the decode floor of a local dataset afterwards, in as many processes as "
    "workers; 0 skips it"
)
_SOURCE_HELP = "a label for the location of the data (local for a folder, else hub)"
# The flags of LeRobot's script with their defaults there, and others: name, default, help, options.
_THEIRS: list[tuple[str, Any, str, Figures]] = [
    ("repo_id", None, "the dataset; with --root only a name", {"required": True}),
    ("root", None, "its folder or URL", {}),
    ("data_files_root", None, "the location of data/ and videos/, if elsewhere", {}),
    ("mode", "single", _MODE_HELP, {"choices": ("single", "sarm")}),
    ("batch_size", 64, "samples per batch", {"type": _count}),
    ("num_workers", 8, _WORKERS_HELP, {"type": _count_or_auto}),
    ("prefetch_factor", 2, 'batches built ahead, or "auto"', {"type": _count_or_auto}),
    ("video_decoder_cache_size", None, "video files kept open", {"type": _count}),
    ("episode_pool_size", config.EPISODE_POOL_SIZE, "episodes mixed at a time", {"type": _count}),
    ("video_decode_device", "cpu", "the device that decodes videos", {"choices": ("cpu", "cuda")}),
    ("num_batches", 200, "batches to measure", {"type": _count}),
    ("warmup_batches", WARMUP_BATCHES, "batches before them", {"type": _count}),
    ("device", "auto", "the device that batches are moved to; auto: cuda if there is one", {}),
    ("source", None, _SOURCE_HELP, {}),
    ("buffer_size", None, "ignored: there is no buffer of samples", {"type": int}),
    ("max_num_shards", 16, "ignored: there are no shards", {"type": int}),
    ("out_dir", OUT_DIR, "folder of results", {"type": Path}),
]
_OURS: list[tuple[str, Any, str, Figures]] = [
    ("revision", None, "branch, tag or commit on the Hub", {}),
    ("frame_cache_bytes", "auto", 'memory for decoded frames, such as "2GiB"', {}),
    ("at_most_s", 0.0, "stop after this many seconds; 0: no limit", {"type": float}),
    ("floor_s", 5.0, _FLOOR_HELP, {"type": float}),
]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add all flags; each may be written with "_", as LeRobot does, or with "-"."""
    theirs = parser.add_argument_group("as in LeRobot's benchmark_streaming.py")
    ours = parser.add_argument_group("robostream's own")
    for group, flags in ((theirs, _THEIRS), (ours, _OURS)):
        for name, default, text, options in flags:
            names = dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])
            text = text if default is None else f"{text} (%(default)s)"
            group.add_argument(*names, default=default, help=text, **options)
    float_help = "images as float32 instead of uint8"
    ours.add_argument("--float32", dest="return_uint8", action="store_false", help=float_help)


def parse_settings(**flags: object) -> argparse.Namespace:
    """Return the settings that these flags give; the others have their defaults."""
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args([f"--{name}={value}" for name, value in flags.items()])


def run(args: argparse.Namespace) -> int:
    """Measure one setting, print it, and write its figures."""
    ensure_writable(args.out_dir)
    name, figures = measure_stream(args)
    path = save_run(args.out_dir, name, figures)
    print(describe(figures))
    print(f"written to {path}", flush=True)
    return 0


def measure_stream(settings: argparse.Namespace) -> tuple[str, Figures]:
    """Return the name of a result and its figures. Blocks until the measurement is done."""
    from robostream.loader import StreamingDataLoader

    written, device = written_settings(settings), _device(settings)
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
        with closing(loader):
            figures = _consume(loader, stream.meta, settings, device)
    wallclock_s = time.perf_counter() - begin
    workers = loader.num_workers
    rank = f"_r{stream.rank}of{stream.world_size}" if stream.world_size > 1 else ""
    # LeRobot's script names its results so.
    name = (
        f"{written['source']}_{settings.mode}_bs{settings.batch_size}_w{workers}"
        f"_pf{loader.prefetch_factor or 0}_ep{settings.episode_pool_size}"
        f"_{settings.video_decode_device}{rank}"
    )
    return name, {
        **written,
        **_loader_figures(loader, stream),
        "device": device.type,
        **figures,
        "floor_images_per_s": _floor(stream.meta, max(workers, 1), settings.floor_s),
        "open_s": opened_s,
        "wallclock_s": wallclock_s,
        **memory.figures(),
        "machine": machine(),
        "definitions": DEFINITIONS,
    }


def written_settings(settings: argparse.Namespace) -> Figures:
    """Return the settings that are written beside the figures, without secrets of addresses."""
    source, place = settings.source, settings.data_files_root or settings.root
    if source is None:
        place = place or explicit_root(settings.repo_id)
        source = "hub" if place is None or as_location(place).is_remote else "local"
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", source):
        raise SelectionError(
            "want a source label of letters, digits, '-', '_' and '.', because it goes into file "
            f"names, got {source!r}"
        )
    return {
        "repo_id": redact(settings.repo_id),
        "root": settings.root and redact(settings.root),
        "data_files_root": settings.data_files_root and redact(settings.data_files_root),
        "source": source,
        **{name: getattr(settings, name) for name in _WRITTEN + _SHARED},
    }


def _device(settings: argparse.Namespace) -> torch.device:
    import torch

    has_gpu = torch.cuda.is_available()
    usual = "cuda" if has_gpu else "cpu"
    device = torch.device(usual if settings.device == "auto" else settings.device)
    if "cuda" in (device.type, settings.video_decode_device) and not has_gpu:
        raise SelectionError(
            f"--device {settings.device} --video_decode_device {settings.video_decode_device}: "
            "want a CUDA GPU, found none that torch can use. Use a machine with a GPU and a CUDA "
            "build of torch, or choose cpu."
        )
    return device


def _open_dataset(settings: argparse.Namespace) -> StreamingLeRobotDataset:
    from robostream.loader import StreamingLeRobotDataset

    windows = None
    if settings.mode != "single":
        meta = LeRobotDatasetMetadata(settings.repo_id, settings.root, settings.revision)
        windows = {key: list(SARM_S) for key in (*meta.camera_keys, "action")}
    options = {name: getattr(settings, name) for name in _PASSED + _SHARED}
    return StreamingLeRobotDataset(
        settings.repo_id, delta_timestamps=windows, tolerance_s=_TOLERANCE_S, **options
    )


def _consume(
    loader: StreamingDataLoader,
    meta: LeRobotDatasetMetadata,
    settings: argparse.Namespace,
    device: torch.device,
) -> Figures:
    """Take the batches of as many epochs as needed; return rates, mixing and the workers' time."""
    distinct: list[int] = []
    before = loader.stats()

    def on_batch(batch: Batch) -> None:
        nonlocal before
        _move(batch, device)
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
    images = len(meta.camera_keys) * (1 if settings.mode == "single" else len(SARM_S))
    return {
        "episodes_per_batch_mean": mean(distinct),
        "episodes_per_batch_uniform": uniform,
        "shuffle_randomness_frac": mean(distinct) / uniform,
        **rates,
        "frames_per_s_node": rates["samples_per_s"],
        "images_per_sample": images,
        "images_per_s": rates["samples_per_s"] * images,
        **_work_figures(before, loader, rates["steady_time_s"]),
    }


def _move(batch: Batch, device: torch.device) -> None:
    """Copy a batch to a device, as a trainer does."""
    import torch

    for value in batch.values():
        if isinstance(value, torch.Tensor):
            value.to(device, non_blocking=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _work_figures(before: Figures, loader: StreamingDataLoader, seconds: float) -> Figures:
    """Return what the workers did since the warm-up and how they spent their time."""
    after, worker_s = loader.stats(), max(loader.num_workers, 1) * seconds
    done = {name: value - before.get(name, 0.0) for name, value in after.items()}
    shares = {f"{kind}_pct_worker_time": 100 * done[f"{kind}_s"] / worker_s for kind in _WORK}
    looked_up = done["file_hits"] + done["file_misses"]
    return {
        **{f"{kind}_s_total": done[f"{kind}_s"] for kind in _WORK},
        **shares,
        "other_pct_worker_time": max(0.0, 100 - sum(shares.values())),
        **{name: done[name] for name in ("images_decoded", "images_delivered")},
        "amplification": done["images_decoded"] / max(done["images_built"], 1),
        "video_decoder_cache": {
            **{name: done[f"file_{name}"] for name in ("hits", "misses", "evictions")},
            "hit_rate": done["file_hits"] / looked_up if looked_up else None,
        },
        "kept_pictures": {"hits": done["picture_hits"], "evictions": done["picture_evictions"]},
        # Since the start; zeros for local files.
        "traffic": {name: after.get(name, 0.0) for name in TRAFFIC},
    }


def _loader_figures(loader: StreamingDataLoader, stream: StreamingLeRobotDataset) -> Figures:
    from robostream.loader import frame_budget, local_ranks

    meta, frames = stream.meta, frame_budget(loader)
    shapes = (list(image_shape(meta.features[key])) for key in meta.camera_keys)
    ranks = local_ranks(stream.world_size)
    return {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "buffer_size": None,
        "num_cameras": len(meta.camera_keys),
        "image_shape": next(shapes, None),
        "fps": stream.fps,
        "frame_cache": {"bytes": frames.nbytes, "reason": frames.reason},
        "limited_by": loader.limited_by(),
        "shuffle": {name: getattr(stream, name) for name in _ORDER},
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
    root, pattern = location_of(meta).local_root, "videos/**/*.mp4"
    if root is None or not seconds or not meta.camera_keys:
        return None
    files = sorted(map(str, root.glob(pattern if meta.video_keys else "data/**/*.parquet")))
    return decode_floor(files, processes, at_most_s=seconds) if files else None


def describe(figures: Figures) -> str:
    """Return the most important figures in a few lines. Pure."""
    floor = figures["floor_images_per_s"]
    over = f", {figures['images_per_s'] / floor:.2f} times raw decode speed" if floor else ""
    waits = ", ".join(f"{figures[f'p{p}_batch_wait_ms']:.1f}" for p in (50, 95, 99))
    work = {n: figures[f"{n}_pct_worker_time"] for n in ("decode", "fetch", "convert", "other")}
    shares = ", ".join(f"{share:.0f} % {kind}" for kind, share in work.items())
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
