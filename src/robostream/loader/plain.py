# SPDX-License-Identifier: Apache-2.0
"""How far a plain torch DataLoader has come, from the batches it delivered. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from robostream.loader.samples import SampleShare


@dataclass(frozen=True, slots=True)
class PlainProgress:
    """Where a worker goes on after a resume.

    A new DataLoader asks its first worker first, whichever worker's turn it was when the old one
    stopped. So a worker may have to go on with another worker's share.

    Attributes:
        share: The share it goes on with, and in which epoch.
        samples: How many samples of that share were delivered before.
    """

    share: SampleShare
    samples: int


def plain_progress(share: SampleShare, batches: int, batch_size: int) -> PlainProgress:
    """Return where a worker with this share of epoch 0 goes on after `batches` batches. Pure.

    A plain DataLoader takes one batch from each worker in turn. At the end of its share, a worker
    makes a short batch of the rest; after that the DataLoader skips it.
    """
    if batches == 0:
        return PlainProgress(share, 0)
    workers = range(share.num_workers)
    counts = [len(dataclasses.replace(share, worker=worker)) for worker in workers]
    per_worker = [-(-count // batch_size) for count in counts]
    epochs, left = divmod(batches, sum(per_worker))
    taken, following = _deal(per_worker, left)
    role = (following + share.worker) % share.num_workers
    plan = share.plan.replace(epoch=share.plan.epoch + epochs)
    own = dataclasses.replace(share, plan=plan, worker=role)
    return PlainProgress(own, min(taken[role] * batch_size, counts[role]))


def _deal(per_worker: list[int], left: int) -> tuple[list[int], int]:
    """Return the batches taken from each worker, and whose turn it is then."""
    taken = [0] * len(per_worker)
    turn = 0
    while left:
        # Count whole rounds at once, as long as the same workers have batches left.
        having = [w for w, count in enumerate(per_worker) if taken[w] < count]
        rounds = min(left // len(having), min(per_worker[w] - taken[w] for w in having))
        if rounds and turn == 0:
            for worker in having:
                taken[worker] += rounds
            left -= rounds * len(having)
            continue
        if taken[turn] < per_worker[turn]:
            taken[turn] += 1
            left -= 1
        turn = (turn + 1) % len(per_worker)
    return taken, turn
