# SPDX-License-Identifier: Apache-2.0
"""Checking what a user asked the stream or the loader for: refuse, warn, or fill in a default."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

from robostream import arguments, config
from robostream.errors import SelectionError
from robostream.plan import default_lanes

logger = logging.getLogger(__name__)

_IGNORED = {
    "buffer_size": "frames are mixed over episode_pool_size episodes, with no buffer of samples",
    "rng": "the order is a function of seed and epoch",
    "max_num_shards": "the stream is not made of shards",
    "video_prefetch_workers": "num_workers of StreamingDataLoader says how many processes decode",
    "prefetch_videos": "worker processes always work ahead, by prefetch_factor batches",
    "decode_threads": "num_workers of StreamingDataLoader says how many processes decode, each "
    "with one thread",
    "multiprocessing_context": "workers are fresh interpreters, whatever the context",
    "persistent_workers": "workers always stay over epochs",
}

_STREAM_LEGACY = {
    "buffer_size",
    "decode_threads",
    "max_num_shards",
    "prefetch_videos",
    "rng",
    "streaming",
    "video_prefetch_workers",
}
# What follows force_cache_sync in the constructor of LeRobot's streaming dataset.
_LEROBOT_ORDER = (
    "streaming",
    "episode_pool_size",
    "buffer_size",
    "max_num_shards",
    "seed",
    "rng",
    "shuffle",
    "return_uint8",
    "rank",
    "world_size",
    "video_decoder_cache_size",
    "data_files_root",
    "video_decode_device",
    "prefetch_videos",
    "video_prefetch_workers",
)


def warn_of_ignored(**values: Any) -> None:
    """Warn of each argument that was given though robostream ignores it."""
    for name, value in values.items():
        if value is not None:
            warnings.warn(f"{name} is ignored: {_IGNORED[name]}", DeprecationWarning, stacklevel=3)


def accept_legacy(given: Mapping[str, Any]) -> None:
    """Warn of each argument of another loader that has no effect here; refuse unknown names."""
    if not arguments.truth(given.get("streaming", True), "streaming"):
        raise SelectionError(
            "streaming=False: StreamingLeRobotDataset always streams; use LeRobotDataset for "
            "random access"
        )
    for name, value in given.items():
        if name not in _STREAM_LEGACY:
            raise TypeError(
                f"StreamingLeRobotDataset() got an unexpected keyword argument {name!r}"
            )
        if name != "streaming" and value is not None:
            warnings.warn(f"{name} is ignored: {_IGNORED[name]}", DeprecationWarning, stacklevel=3)


def refuse_positions(values: tuple[Any, ...]) -> None:
    """Raise TypeError, with the names, for arguments that are given by position but not by name."""
    if values:
        names = ", ".join(f"{name}=" for name in _LEROBOT_ORDER[: len(values)])
        raise TypeError(
            f"StreamingLeRobotDataset() takes the arguments after force_cache_sync by name. In "
            f"LeRobot's order the values given here are {names}"
        )


def refuse_items() -> NoReturn:
    """Raise SelectionError for an item of a stream."""
    raise SelectionError(
        "a StreamingLeRobotDataset has no items by number: iterate over it, or over a "
        "StreamingDataLoader of it. LeRobotDataset has dataset[3] and dataset[3:5]."
    )


def refuse_samples(samples: object) -> NoReturn:
    """Raise SelectionError: the `collate_fn` of a StreamingDataLoader, which collates nothing.

    It is called where a program makes a plain DataLoader of a StreamingDataLoader's attributes, as
    `accelerate.skip_first_batches` does. Its batches would be other ones.
    """
    raise SelectionError(
        "accelerate.skip_first_batches(), or another program, made a plain DataLoader from a "
        "StreamingDataLoader. Its batches would be others, and it has no state. Call "
        'loader.load_state_dict({"batches_consumed": n, "batch_size": b}), or load a saved state, '
        "and iterate over the loader itself. With transformers.Trainer, set ignore_data_skip=True."
    )


def refuse_copy() -> NoReturn:
    """Raise SelectionError for a copy of an iterator."""
    raise SelectionError(
        "an iterator cannot be copied or pickled: both would deliver from the same batches. Copy "
        "the loader or the stream, which stands where it stands, and call iter() on the copy."
    )


def choose_lanes(lanes: int | None, num_episodes: int, world_size: int, *, shuffle: bool) -> int:
    """Return the number of lanes: the given one, else the plan's default."""
    if lanes is None:
        return default_lanes(num_episodes, world_size, shuffle=shuffle)
    lanes = arguments.whole_number(lanes, "lanes", 1, config.MOST_LANES)
    if lanes % world_size and shuffle:
        logger.warning(
            "%d ranks cannot share %d lanes evenly: the order is exact, but each rank reads and "
            "decodes parts of about %d times as many episodes. A run begun with lanes=%d can share "
            "them evenly.",
            world_size,
            lanes,
            world_size // math.gcd(world_size, lanes),
            math.lcm(lanes, world_size),
        )
    return lanes


def choose_depth(batch_size: int, batch_bytes: int, num_workers: int) -> int:
    """Return how many batches to build ahead within the memory for them, at least two. Pure.

    If fewer are built ahead, workers wait for the slowest of them more often.
    """
    memory = max(config.BATCH_MEMORY_BYTES, num_workers * config.BATCH_MEMORY_PER_WORKER_BYTES)
    room = memory // max(batch_bytes, 1) - 1
    samples = max(config.PREFETCH_SAMPLES, num_workers * config.PREFETCH_SAMPLES_PER_WORKER)
    wanted = max(config.PREFETCH_BATCHES, -(-samples // batch_size))
    return min(max(room, 2), wanted)
