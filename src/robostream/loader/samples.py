# SPDX-License-Identifier: Apache-2.0
"""Single samples in order, for plain loaders: a rank's samples dealt out to its workers in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from robostream.loader.delivery import Share, deliver
from robostream.loader.ranks import Rank
from robostream.loader.workshop import Workshop
from robostream.plan import Batch, Cut, EpochPlan, chunk_positions, frames_at


def rank_positions(num_frames: int, rank: int, world_size: int, start: int) -> range:
    """Return the positions a rank delivers from `start` on. Pure.

    The epoch is completed to a multiple of the world size, with the frames of its first positions,
    so that all ranks deliver equally many.
    """
    stop = start + -(-(num_frames - start) // world_size) * world_size
    return range(start + (rank - start) % world_size, stop, world_size)


def single_batches(plan: EpochPlan, positions: range) -> Iterator[Batch]:
    """Yield batches of one sample for each position, computing the order a chunk at a time."""
    chunk = max(1, chunk_positions(plan) // positions.step)
    for first in range(0, len(positions), chunk):
        own = positions[first : first + chunk]
        episodes, frames = frames_at(plan, own)
        for place in range(len(own)):
            at = slice(place, place + 1)
            yield Batch(first + place, own[at], episodes[at], frames[at])


class SampleIterator:
    """Yields one worker's samples of an epoch; its state says where, so that it can go on there.

    torchdata's StatefulDataLoader saves and restores that state worker by worker.

    Args:
        plan: The order of the epoch.
        rank: Which process of the training run this is.
        role: Which of the workers' shares this is, and how many there are: (n, N).
        start: The global position at which the iteration begins.
        skipped: Samples of the share to leave out from there.
        shop: What this process keeps open.
        depth: How many samples to work ahead.
        on_load: Told the epoch of a loaded state.
    """

    def __init__(
        self,
        plan: EpochPlan,
        *,
        rank: Rank,
        role: tuple[int, int],
        start: int,
        skipped: int,
        shop: Workshop,
        depth: int,
        on_load: Callable[[int], None],
    ) -> None:
        self._plan = plan
        self._rank = rank
        self._role = role
        self._start = start
        self._yielded = skipped
        self._shop = shop
        self._depth = depth
        self._on_load = on_load
        self._samples: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> SampleIterator:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._samples is None:
            self._samples = self._deliver()
        sample = next(self._samples)
        self._yielded += 1
        return sample

    def cursor(self) -> tuple[int, int]:
        """Return the epoch and the next position of all ranks, where this is the only worker."""
        if self._yielded >= len(self._positions()):
            return self._plan.epoch + 1, 0
        return self._plan.epoch, self._start + self._yielded * self._rank.world_size

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, where in it the iteration began, and the samples left behind since."""
        return {
            "epoch": self._plan.epoch,
            "start": self._start,
            "role": list(self._role),
            "yielded": self._yielded,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state stands."""
        self._plan = self._plan.replace(epoch=state["epoch"])
        self._start = state["start"]
        self._role = (state["role"][0], state["role"][1])
        self._yielded = state["yielded"]
        self._samples = None
        self._on_load(state["epoch"])

    def close(self) -> None:
        """Stop the threads that work ahead."""
        if self._samples is not None:
            self._samples.close()  # type: ignore[attr-defined]

    def _positions(self) -> range:
        rank = self._rank
        whole = rank_positions(self._plan.num_frames, rank.rank, rank.world_size, self._start)
        return whole[self._role[0] :: self._role[1]]

    def _deliver(self) -> Iterator[dict[str, Any]]:
        positions = self._positions()[self._yielded :]
        if not positions:
            return
        # Samples are dealt to workers in turn, as positions are to ranks: a worker is a rank of a
        # world that many times as large.
        world_size = positions.step
        cut = Cut(positions.start % world_size, world_size, batch_size=1, drop_last=False)
        share = Share(self._plan, cut, positions.start, worker=0, num_workers=1)
        batches = single_batches(self._plan, positions)
        for _, writer in deliver(batches, share, self._shop, depth=self._depth):
            yield writer.item()
