# SPDX-License-Identifier: Apache-2.0
"""Feeds: where batches come from. They differ in how they read, not in what they tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from examples.act import Batch
from robostream import LeRobotDatasetMetadata
from robostream.plan import Cursor, Cut, advance, digest


class BatchBuilder(NamedTuple):
    """A process's batch of one step.

    Attributes:
        batch: The batch.
        epoch: The epoch it belongs to.
        stop: The position after the step in the order of that epoch.
        own: How many of its samples, the first ones, have a position of their own; the others only
            make the tail's batches equally long.
    """

    batch: Batch
    epoch: int
    stop: int
    own: int

    @property
    def digest(self) -> int:
        """Of its own frames. Waits for the device, if the batch lies on one."""
        keys = ("episode_index", "frame_index")
        episodes, frames = (self.batch[key][: self.own].cpu().numpy() for key in keys)
        return digest(episodes, frames)


class Feed(Protocol):
    """Endless batches, and where in the data the run stands."""

    meta: LeRobotDatasetMetadata

    @property
    def order(self) -> dict[str, Any]:
        """What the order is made of, for the log of receipts."""

    def deliveries(self) -> Iterator[BatchBuilder]:
        """Yield batch after batch, epoch after epoch, from where the feed stands."""

    def save(self, folder: Path, step: int) -> None:
        """Write into a checkpoint where the run stands after its last delivery."""

    def resume(self, folder: Path) -> None:
        """Go on where a checkpoint stands, on any number of processes."""

    def close(self) -> None:
        """End the processes that read."""


def deliver(
    batches: Iterable[Batch],
    cut: Cut,
    num_frames: int,
    cursor: Cursor,
    count_own: Callable[[Cut, int, int], int],
) -> Iterator[BatchBuilder]:
    """Yield the batches of an epoch with what is known about each.

    Args:
        batches: The batches from `cursor` to the end of the epoch.
        cut: This process's share of a step.
        num_frames: Frames of an epoch.
        cursor: Where the first batch begins.
        count_own: Takes the cut, the frames and a position; returns how many samples, the first
            ones, of the batch that begins there have a position of their own.
    """
    for batch in batches:
        after = advance(cut, num_frames, cursor, 1)
        stop = after.position if after.epoch == cursor.epoch else num_frames
        own = count_own(cut, num_frames, cursor.position)
        yield BatchBuilder(batch, cursor.epoch, stop, own)
        cursor = after


def action_window(meta: LeRobotDatasetMetadata, num_actions: int) -> dict[str, list[float]]:
    """Return the delta timestamps of a chunk of actions: the current one and those after it."""
    return {"action": [step / meta.fps for step in range(num_actions)]}
