# SPDX-License-Identifier: Apache-2.0
"""In which order: the pure arithmetic of an epoch. No I/O, no torch, no clock, no global RNG.

mix.py         pseudo-random words, each computed from a key and an index
permute.py     permutations from a key
line.py        the episodes of an epoch laid end to end
lane.py        one lane of the line: a circular shuffle with random delays
lanes.py       how the line is cut into lanes
lane_count.py  how many lanes there are, where the user gives no number
quarantine.py  what stands in for the frames of quarantined episodes
receipt.py     digests of sets of frames that add up
epoch.py       EpochPlan: the order of an epoch, made of the above
cut.py         the shares of ranks and workers, the tail, the step from epoch to epoch
walk.py        the order step by step
ledger.py      the receipts step by step
state.py       where a run stands, as plain values
"""

from __future__ import annotations

from robostream.plan.cut import (
    Cursor,
    Cut,
    advance,
    dropped_frames,
    frames_at,
    rank_lanes,
    step_positions,
    steps_left,
)
from robostream.plan.epoch import EpochPlan
from robostream.plan.lane import Lane, head_of_lane, places_in_lane, unroll_lane
from robostream.plan.lane_count import default_lanes
from robostream.plan.ledger import StepReceipt, step_receipts
from robostream.plan.line import Line
from robostream.plan.mix import Ints, stream
from robostream.plan.permute import permute
from robostream.plan.receipt import digest, format_receipt, pair_digests
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
from robostream.plan.walk import Batch, chunk_positions, walk

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
