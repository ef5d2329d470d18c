# SPDX-License-Identifier: Apache-2.0
"""In which order: the pure arithmetic of an epoch. No I/O, no torch, no clock, no global RNG.

hashing.py     pseudo-random words and permutations, each computed from a key and an index
line.py        the segments of an epoch laid end to end, and replacements of quarantined ones
lanes.py       the line cut into lanes: circular shuffles with hashed delays
mixture.py     the segments of several datasets, and of trimmed, weighted or strided episodes
epoch.py       EpochPlan: the order of an epoch, and its receipts
sharding.py    the shares of ranks and workers, the tail, the order step by step
schedule.py    which frame of which lane goes to which place of each batch
lookahead.py   how far ahead frames are decoded, what memory that takes, and when bytes are used
state.py       the state of a run, as plain values
"""

from __future__ import annotations

from robostream.plan.epoch import EpochPlan, digest, format_receipt
from robostream.plan.epoch import pair_digests as pair_digests
from robostream.plan.hashing import Ints as Ints
from robostream.plan.hashing import permute as permute
from robostream.plan.hashing import stream as stream
from robostream.plan.lanes import Lane as Lane
from robostream.plan.lanes import default_lanes
from robostream.plan.lanes import head_of_lane as head_of_lane
from robostream.plan.lanes import places_in_lane as places_in_lane
from robostream.plan.lanes import unroll_lane as unroll_lane
from robostream.plan.line import Line as Line
from robostream.plan.line import Segments as Segments
from robostream.plan.line import WholeEpisodes as WholeEpisodes
from robostream.plan.lookahead import CHUNK_FRAMES as CHUNK_FRAMES
from robostream.plan.lookahead import LONG_GOP_FRAMES as LONG_GOP_FRAMES
from robostream.plan.lookahead import CameraFrames as CameraFrames
from robostream.plan.lookahead import DecodePacing as DecodePacing
from robostream.plan.lookahead import FrameMemory as FrameMemory
from robostream.plan.lookahead import NextUse as NextUse
from robostream.plan.lookahead import UpcomingPart as UpcomingPart
from robostream.plan.lookahead import frame_memory as frame_memory
from robostream.plan.lookahead import is_chunk_due as is_chunk_due
from robostream.plan.lookahead import margin_frames as margin_frames
from robostream.plan.mixture import Mixture as Mixture
from robostream.plan.mixture import MixtureSource as MixtureSource
from robostream.plan.mixture import SelectedFrames as SelectedFrames
from robostream.plan.mixture import label_dataset as label_dataset
from robostream.plan.mixture import share_frames as share_frames
from robostream.plan.schedule import Schedule as Schedule
from robostream.plan.schedule import ScheduledStep as ScheduledStep
from robostream.plan.schedule import extra_frame as extra_frame
from robostream.plan.schedule import first_place as first_place
from robostream.plan.schedule import schedule_steps as schedule_steps
from robostream.plan.sharding import (
    Batch,
    Cursor,
    Cut,
    StepReceipt,
    advance,
    step_positions,
    step_receipts,
    steps_left,
    walk,
)
from robostream.plan.sharding import WorkerShard as WorkerShard
from robostream.plan.sharding import chunk_positions as chunk_positions
from robostream.plan.sharding import dropped_frames as dropped_frames
from robostream.plan.sharding import frames_at as frames_at
from robostream.plan.sharding import rank_lanes as rank_lanes
from robostream.plan.state import MIXTURE_VERSION as MIXTURE_VERSION
from robostream.plan.state import (
    STATE_VERSION,
    PlanState,
    capture_state,
    check_state,
    cursor_from_batches,
    parse_state,
)
from robostream.plan.state import check_batches as check_batches
from robostream.plan.state import counts_batches as counts_batches
from robostream.plan.state import quarantined_episodes as quarantined_episodes
from robostream.plan.state import resume_content as resume_content

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
