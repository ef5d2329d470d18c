# SPDX-License-Identifier: Apache-2.0
"""Going through the order step by step; it is computed a chunk of positions at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from robostream.plan.cut import Cut, frames_at, step_positions
from robostream.plan.epoch import EpochPlan
from robostream.plan.mix import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What one rank delivers in one step.

    Attributes:
        step: The number of the step, counted from where the walk began.
        positions: The global positions; those from num_frames on complete the tail.
        episodes: The episode id at each position.
        frames: The frame in that episode.
    """

    step: int
    positions: range
    episodes: Ints
    frames: Ints


def chunk_positions(plan: EpochPlan) -> int:
    """Return how many positions to compute at a time, so that one of them costs little. Pure.

    To compute a chunk, the window of each lane is looked at, however small the chunk is. So a chunk
    takes at least a window from each lane, and enough positions to make up for the cost of calls;
    but no more than 64 MiB of pairs.
    """
    return min(max(16_384, 64 * plan.lanes, plan.window * plan.lanes), 1 << 22)


def walk(plan: EpochPlan, cut: Cut, position: int, steps: range) -> Iterator[Batch]:
    """Yield the rank's batches of `steps`, numbered from `position` on.

    Args:
        plan: The order of the epoch.
        cut: The rank, the batch size and the tail rule.
        position: Where step 0 begins.
        steps: All steps (`range(steps_left(...))`), or every n-th.
    """
    per_chunk = max(1, chunk_positions(plan) // (cut.step_size * steps.step))
    for begin in range(0, len(steps), per_chunk):
        chunk = steps[begin : begin + per_chunk]
        spans = [step_positions(cut, plan.num_frames, position, step) for step in chunk]
        whole = range(spans[0].start, spans[-1].stop, cut.world_size)
        episodes, frames = frames_at(plan, whole)
        for step, span in zip(chunk, spans, strict=True):
            own = slice(whole.index(span.start), whole.index(span.start) + len(span))
            yield Batch(step, span, episodes[own], frames[own])
