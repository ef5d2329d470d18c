# SPDX-License-Identifier: Apache-2.0
"""Everything that was seen in one run, as one JSON object; each rate is defined in it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import torch

from robostream.bench.environment import machine
from robostream.bench.memory import MemoryWatch
from robostream.bench.results import Figures
from robostream.bench.stream.mixing import Mixing
from robostream.bench.stream.pace import DecodePacing
from robostream.bench.stream.settings import StreamSettings, as_figures
from robostream.loader import StreamingDataLoader, frame_budget, local_ranks
from robostream.meta import image_shape
from robostream.storage import TRAFFIC

DEFINITIONS = {
    "frame": "one sample: one time step of an episode with all its cameras and windows",
    "image": "one picture of one camera; a sample of mode sarm has 8 of each camera",
    "samples_per_s": "samples this process was given after the warm-up, over the seconds since "
    "the last batch of the warm-up; waits at the ends of epochs included",
    "frames_per_s_node": "the same number: one process of this benchmark runs on a node; where "
    "several do (ranks_per_node), add up theirs",
    "images_per_s": "samples_per_s times the images of a sample",
    "floor_images_per_s": "images/s of decoding this dataset's files alone, in order, in as many "
    "processes as workers, one thread each, without colour conversion, measured afterwards",
    "first_batch_latency_s": "from the first batch being asked for to its arrival; open_s before "
    "it went into metadata and the loader",
    "sample_latency_ms": "time between two batches, over the samples of a batch",
    "batch_wait_ms": "time from asking for a batch to its arrival",
    "samples_per_s_by_stretch": "from the moment the first batch is asked for, nothing left out",
    "amplification": "images decoded over images delivered, after the warm-up",
    "worker_time": "steady_time_s times the workers; *_pct_worker_time are shares of it, and "
    "other_pct_worker_time is what is left: rows, waiting for the consumer or for each other",
    "shuffle_randomness_frac": "distinct episodes per batch over those expected of a uniform "
    "shuffle of the dataset",
    "peak_rss_gb": "memory of all processes, shared pages counted by each who has them, in GB",
    "peak_pss_gb": "the same with shared pages counted once",
}
_WORK = ("fetch", "decode", "convert", "copy")
_MOST_POINTS = 240


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run has shown.

    Attributes:
        opened_s: How long dataset and loader took to open.
        device: Where batches were moved to.
        before: The loader's counters at the end of the warm-up.
        after: The same at the end.
    """

    opened_s: float
    device: torch.device
    pace: DecodePacing
    mixing: Mixing
    before: dict[str, float]
    after: dict[str, float]


def all_figures(
    settings: StreamSettings,
    loader: StreamingDataLoader,
    seen: Seen,
    memory: MemoryWatch,
    *,
    floor: Figures,
    wallclock_s: float,
) -> Figures:
    """Return the figures of one run."""
    stream = loader.stream
    pace = seen.pace.figures(settings.batch_size)
    images = _images_per_sample(settings, len(stream.meta.camera_keys))
    return {
        **as_figures(settings),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "buffer_size": None,
        **seen.mixing.figures(),
        "num_cameras": len(stream.meta.camera_keys),
        "image_shape": _image_shape(loader),
        "fps": stream.fps,
        "device": seen.device.type,
        "peak_rss_gb": max(size for _, size in memory.rss) / 1e9,
        "peak_pss_gb": max(size for _, size in memory.pss) / 1e9,
        **pace,
        "frames_per_s_node": pace["samples_per_s"],
        "images_per_sample": images,
        "images_per_s": pace["samples_per_s"] * images,
        **floor,
        "open_s": seen.opened_s,
        "wallclock_s": wallclock_s,
        **_work_figures(seen, max(loader.num_workers, 1) * pace["steady_time_s"]),
        "frame_cache": _frame_cache(loader),
        "shuffle": {
            "seed": stream.seed,
            "shuffle": stream.shuffle,
            "episode_pool_size": stream.episode_pool_size,
            "lanes": stream.lanes,
        },
        "dataset": {"episodes": stream.num_episodes, "frames": stream.num_frames},
        "node": _node(loader),
        "machine": machine(),
        "rss_gb_over_time": _thinned(memory.rss),
        "pss_gb_over_time": _thinned(memory.pss),
        "definitions": DEFINITIONS,
    }


def _work_figures(seen: Seen, worker_s: float) -> Figures:
    """Return what workers did since the warm-up, and where their time went."""
    did = {name: value - seen.before.get(name, 0.0) for name, value in seen.after.items()}
    shares = {f"{kind}_pct_worker_time": 100 * did[f"{kind}_s"] / worker_s for kind in _WORK}
    looked_up = did["file_hits"] + did["file_misses"]
    return {
        **{f"{kind}_s_total": did[f"{kind}_s"] for kind in _WORK},
        **shares,
        "other_pct_worker_time": max(0.0, 100 - sum(shares.values())),
        "images_decoded": did["images_decoded"],
        "images_delivered": did["images_delivered"],
        "amplification": did["images_decoded"] / max(did["images_delivered"], 1),
        "video_decoder_cache": {
            "hits": did["file_hits"],
            "misses": did["file_misses"],
            "evictions": did["file_evictions"],
            "hit_rate": did["file_hits"] / looked_up if looked_up else None,
        },
        "kept_pictures": {"hits": did["picture_hits"], "evictions": did["picture_evictions"]},
        "traffic": _traffic(seen.after),
    }


def _traffic(totals: dict[str, float]) -> dict[str, float]:
    """Return what was asked of servers since the start; zeros where files are local."""
    return {name: totals.get(name, 0.0) for name in TRAFFIC}


def _frame_cache(loader: StreamingDataLoader) -> dict[str, Any]:
    frames = frame_budget(loader)
    return {"bytes": frames.nbytes, "reason": frames.reason}


def _images_per_sample(settings: StreamSettings, cameras: int) -> int:
    windows = settings.windows(["camera"])
    return cameras * (len(windows["camera"]) if windows else 1)


def _image_shape(loader: StreamingDataLoader) -> list[int] | None:
    meta = loader.stream.meta
    shapes = [list(image_shape(meta.features[key])) for key in meta.camera_keys]
    return shapes[0] if shapes else None


def _node(loader: StreamingDataLoader) -> dict[str, Any]:
    rank, world_size = loader.stream.rank, loader.stream.world_size
    return {
        "hostname": socket.gethostname(),
        "rank": rank,
        "world_size": world_size,
        "num_nodes": world_size // local_ranks(world_size),
        "ranks_per_node": local_ranks(world_size),
    }


def _thinned(points: list[tuple[float, int]]) -> list[list[float]]:
    """Return at most so many points of a curve, as [seconds, GB]. Pure."""
    step = -(-len(points) // _MOST_POINTS)
    return [[round(at, 1), round(size / 1e9, 3)] for at, size in points[::step]]
