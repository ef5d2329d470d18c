# SPDX-License-Identifier: Apache-2.0
"""In which order: the pure arithmetic of an epoch. No I/O, no torch, no clock, no global RNG.

hashing.py     pseudo-random words and permutations, each computed from a key and an index
line.py        the segments of an epoch laid end to end, and replacements of quarantined ones
lanes.py       the line cut into lanes: circular shuffles with hashed delays
mixture.py     the segments of several datasets, and of trimmed, weighted or strided episodes
epoch.py       EpochPlan: the order of an epoch, and its receipts
sharding.py    the shares of ranks and workers, the tail, the order step by step
schedule.py    which frame of which lane goes to which place of each batch, and how far ahead frames
               are decoded, what memory that takes, and when bytes are used
state.py       the state of a run, as plain values

Workers of plain streams load neither mixture.py nor state.py: their names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robostream.lazy import load_on_first_use
from robostream.plan.epoch import EpochPlan, digest, format_receipt
from robostream.plan.hashing import Ints, permute, stream
from robostream.plan.lanes import default_lanes, head_of_lane, places_in_lane
from robostream.plan.line import Line, Segments, WholeEpisodes
from robostream.plan.schedule import (
    CHUNK_FRAMES,
    LONG_GOP_FRAMES,
    CameraFrames,
    DecodePacing,
    FrameMemory,
    NextUse,
    Schedule,
    ScheduledStep,
    UpcomingPart,
    extra_frame,
    first_place,
    frame_memory,
    is_chunk_due,
    lookahead_steps,
    margin_frames,
    schedule_steps,
)
from robostream.plan.sharding import (
    Batch,
    Cursor,
    Cut,
    StepReceipt,
    WorkerShard,
    advance,
    dropped_frames,
    frames_at,
    rank_lanes,
    step_positions,
    step_receipts,
    steps_left,
    walk,
)

if TYPE_CHECKING:
    from robostream.plan.mixture import (
        Mixture,
        MixtureSource,
        SelectedFrames,
        label_dataset,
        share_frames,
    )
    from robostream.plan.state import (
        STATE_VERSION,
        PlanState,
        capture_state,
        check_batches,
        check_state,
        counts_batches,
        cursor_from_batches,
        parse_state,
        quarantined_episodes,
        resume_content,
    )

# The public names, which docs/order.md teaches. The others are for the later stages of the package.
__all__ = [
    "Batch",
    "Cursor",
    "Cut",
    "EpochPlan",
    "PlanState",
    "STATE_VERSION",
    "StepReceipt",
    "advance",
    "capture_state",
    "check_state",
    "cursor_from_batches",
    "default_lanes",
    "digest",
    "format_receipt",
    "parse_state",
    "step_positions",
    "step_receipts",
    "steps_left",
    "walk",
]

__getattr__ = load_on_first_use(
    "robostream.plan",
    {
        "mixture": "Mixture MixtureSource SelectedFrames label_dataset share_frames",
        "state": "PlanState STATE_VERSION capture_state check_batches check_state counts_batches "
        "cursor_from_batches parse_state quarantined_episodes resume_content",
    },
)
