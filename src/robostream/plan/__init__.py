# SPDX-License-Identifier: Apache-2.0
"""In which order: the pure arithmetic of an epoch. No I/O, no torch, no clock, no global RNG.

hashing.py     pseudo-random words and permutations, each computed from a key and an index
line.py        the segments of an epoch laid end to end, and stand-ins for quarantined ones
lanes.py       the line cut into lanes: circular shuffles with hashed delays
receipts.py    digests of sets of frames that add up
epoch.py       EpochPlan: the order of an epoch, made of the above
sharding.py    the shares of ranks, the tail, the order step by step, from epoch to epoch
state.py       where a run stands, as plain values
"""

from __future__ import annotations

from robostream.plan.epoch import EpochPlan
from robostream.plan.hashing import Ints, permute, stream
from robostream.plan.lanes import (
    Lane,
    default_lanes,
    head_of_lane,
    places_in_lane,
    unroll_lane,
)
from robostream.plan.line import Line
from robostream.plan.receipts import digest, format_receipt, pair_digests
from robostream.plan.sharding import (
    Batch,
    Cursor,
    Cut,
    StepReceipt,
    advance,
    chunk_positions,
    dropped_frames,
    frames_at,
    rank_lanes,
    step_positions,
    step_receipts,
    steps_left,
    walk,
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
)

__all__ = [
    "Batch",
    "Cursor",
    "Cut",
    "EpochPlan",
    "Ints",
    "Lane",
    "Line",
    "PlanState",
    "STATE_VERSION",
    "StepReceipt",
    "advance",
    "capture_state",
    "check_batches",
    "check_state",
    "chunk_positions",
    "counts_batches",
    "cursor_from_batches",
    "default_lanes",
    "digest",
    "dropped_frames",
    "format_receipt",
    "frames_at",
    "head_of_lane",
    "pair_digests",
    "parse_state",
    "permute",
    "places_in_lane",
    "rank_lanes",
    "step_positions",
    "step_receipts",
    "steps_left",
    "stream",
    "unroll_lane",
    "walk",
]
