# SPDX-License-Identifier: Apache-2.0
"""The ledger: the receipts of an epoch, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from robostream.plan.cut import Cut, steps_left
from robostream.plan.epoch import EpochPlan
from robostream.plan.receipt import pair_digests
from robostream.plan.walk import chunk_positions


@dataclass(frozen=True, slots=True)
class StepReceipt:
    """The digest of one global batch, and the receipt after it.

    Attributes:
        epoch: The epoch.
        step: The number of the step in the epoch, counted from where the ledger begins.
        stop: The position after the step.
        digest: The digest of the step's (episode, frame) pairs, without those completing a tail.
        receipt: The digest of all pairs of the epoch before `stop`.
    """

    epoch: int
    step: int
    stop: int
    digest: int
    receipt: int


def step_receipts(plan: EpochPlan, cut: Cut, position: int) -> Iterator[StepReceipt]:
    """Yield the receipts of all steps from `position` to the end of the epoch.

    They depend on the size of the global batch, not on how ranks share it.
    """
    steps = steps_left(cut, plan.num_frames, position)
    receipt = plan.receipt(position)
    per_chunk = max(1, chunk_positions(plan) // cut.step_size)
    for begin in range(0, steps, per_chunk):
        chunk = range(begin, min(begin + per_chunk, steps))
        start = position + begin * cut.step_size
        stop = min(position + chunk.stop * cut.step_size, plan.num_frames)
        digests = pair_digests(*plan.slice(start, stop))
        sums = np.add.reduceat(digests, np.arange(0, stop - start, cut.step_size))
        for step, digest in zip(chunk, sums.tolist(), strict=True):
            receipt = (receipt + digest) % (1 << 64)
            last = min(position + (step + 1) * cut.step_size, plan.num_frames)
            yield StepReceipt(plan.epoch, step, last, digest, receipt)
