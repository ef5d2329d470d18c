# SPDX-License-Identifier: Apache-2.0
"""What limits a run, and what would help, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from robostream.byte_sizes import format_bytes

# A consumer that waits less than this share of its time would gain little from faster loading.
_LITTLE_WAITING = 0.05
# Workers that spend more than this share of their time on reading wait for bytes.
_MUCH_READING = 0.3
# Of decoded frames, more than this share evicted before their use is a lack of memory.
_MANY_EVICTED = 0.05
# Workers that are busy for less than this share of their time wait for each other.
_BUSY = 0.85


@dataclass(frozen=True, slots=True)
class LoadShares:
    """How a consumer and its workers spent an epoch. Shares are of their time, from 0 to 1.

    Attributes:
        waited: The consumer waited for batches.
        busy: The workers built batches, on average.
        busiest: The busiest worker did.
        reading: The workers waited for bytes of files.
        decoding: The workers decoded.
        is_remote: Whether bytes came from a server.
        evicted: Frames evicted before their use, per decoded frame.
        lacking_bytes: How much more memory for decoded frames the order needs.
    """

    waited: float
    busy: float
    busiest: float
    reading: float
    decoding: float
    is_remote: bool
    evicted: float
    lacking_bytes: int


def describe_limit(load: LoadShares) -> str:
    """Return what limits a run, with the figures that show it, and what would help. Pure."""
    if load.waited < _LITTLE_WAITING:
        return f"the training loop, which waited {load.waited:.0%} of its time for batches"
    if load.reading > _MUCH_READING and load.is_remote:
        return (
            f"the network: workers waited {load.reading:.0%} of their time for bytes; a nearer "
            "copy, `robostream cache warm` or a larger cache_limit would help"
        )
    if load.reading > _MUCH_READING:
        return (
            f"the disk: workers waited {load.reading:.0%} of their time for bytes; a faster disk "
            "or more memory for the system's file cache would help"
        )
    if load.lacking_bytes > 0 and load.evicted > _MANY_EVICTED:
        return (
            f"memory: {load.evicted:.0%} of the decoded frames were evicted before their use; "
            f"{format_bytes(load.lacking_bytes)} more for frame_cache_bytes, a frame_cache_dir, "
            "resize or a smaller episode_pool_size would help"
        )
    if load.busy >= _BUSY:
        is_decoding = load.decoding >= load.busy / 2
        recode = ", fewer cameras or `robostream recode`" if is_decoding else " or fewer cameras"
        return (
            f"{'decoding' if is_decoding else 'converting and copying frames'}: workers were busy "
            f"{load.busy:.0%} of their time and decoded {load.decoding:.0%} of it; more cores "
            f"(num_workers), resize{recode} would help"
        )
    return (
        f"the slowest worker: workers were busy {load.busy:.0%} of their time, the busiest "
        f"{load.busiest:.0%}; a larger prefetch_factor or more lanes would help"
    )
