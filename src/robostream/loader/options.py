# SPDX-License-Identifier: Apache-2.0
"""Checking what a user asked the stream for: refuse, warn, or fill in a default."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

from torch.utils.data import get_worker_info

from robostream import config
from robostream.errors import SelectionError, StateError

logger = logging.getLogger(__name__)

_DEPRECATED = {
    "buffer_size": "frames are mixed over episode_pool_size episodes, with no buffer of samples",
    "rng": "the order is a function of seed and epoch",
    "max_num_shards": "the stream is not made of shards",
    "video_prefetch_workers": "decode_threads says how many threads fetch and decode",
}


def warn_of_deprecated(**values: Any) -> None:
    """Warn of each argument of the reference system that means nothing here and was given."""
    for name, value in values.items():
        if value is not None:
            warnings.warn(
                f"{name} is ignored: {_DEPRECATED[name]}", DeprecationWarning, stacklevel=3
            )


def check_options(*, streaming: bool, video_decode_device: str) -> None:
    """Raise SelectionError for what cannot be honoured."""
    if not streaming:
        raise SelectionError(
            "streaming=False: StreamingLeRobotDataset always streams; use LeRobotDataset for "
            "random access"
        )
    if video_decode_device != "cpu":
        raise SelectionError(
            f"video_decode_device={video_decode_device!r}: this version decodes on the CPU only; "
            "leave it out or pass 'cpu'"
        )


def choose_lanes(lanes: int | None, world_size: int, *, shuffle: bool) -> int:
    """Return the number of lanes: the given one, else one that this world size divides.

    Without a shuffle there is one lane per rank, so that each rank reads a contiguous share.
    """
    if lanes is not None and lanes < 1:
        raise SelectionError(f"lanes must be 1 or more, got {lanes}")
    if not shuffle:
        return lanes or world_size
    if lanes is None:
        return math.lcm(config.LANES, world_size)
    if lanes % world_size:
        logger.warning(
            "%d ranks do not divide %d lanes: the order is exact, but each rank reads and decodes "
            "parts of about %d times as many episodes. lanes=%d would divide.",
            world_size,
            lanes,
            world_size // math.gcd(world_size, lanes),
            math.lcm(lanes, world_size),
        )
    return lanes


def choose_depth(prefetch_factor: int | None, batch_bytes: int) -> int:
    """Return how many batches to build ahead: as given, else fewer where batches are large. Pure.

    With too few the threads wait for the slowest part of a batch; two always keep them busy.
    """
    room = config.BATCH_MEMORY_BYTES // max(batch_bytes, 1) - 1
    return prefetch_factor or min(max(room, 2), config.PREFETCH_BATCHES)


def worker_place() -> tuple[int, int]:
    """Return this DataLoader worker's number and how many there are; (0, 1) outside of one."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def default_threads(num_workers: int) -> int:
    """Return this process's share of the cores it may run on."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    return max(1, cores // num_workers)


def batches_of(state: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of {"batches_consumed", "batch_size"}, or raise StateError."""
    batches, batch_size = state.get("batches_consumed"), state.get("batch_size")
    if (
        not isinstance(batches, int)
        or not isinstance(batch_size, int)
        or batches < 0
        or batch_size < 1
    ):
        raise StateError(
            'want {"batches_consumed": int >= 0, "batch_size": int >= 1}, got '
            f"batches_consumed={batches!r}, batch_size={batch_size!r}"
        )
    return batches, batch_size
