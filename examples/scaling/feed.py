# SPDX-License-Identifier: Apache-2.0
"""Feeds: sources of batches, with the position of each batch in the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from examples.act import Batch
from robostream import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    MixtureDataset,
    StreamingLeRobotDataset,
)
from robostream.plan import Cursor, Cut, advance, digest

TrainingData = StreamingLeRobotDataset | LeRobotDataset | MixtureDataset


class StepBatch(NamedTuple):
    """A process's batch of one step.

    Attributes:
        stop: The position after the step in the order of the epoch.
        own: The number of leading samples with their own position; the others only pad the last
            batches of the epoch to equal length.
        first_episodes: The number that episode 0 of each dataset has in the order of a mixture.
    """

    batch: Batch
    epoch: int
    stop: int
    own: int
    first_episodes: Tensor | None = None

    @property
    def digest(self) -> int:
        """The digest of its own frames. Waits for the device of the batch."""
        keys = ("episode_index", "frame_index")
        episodes, frames = (self.batch[key][: self.own].cpu() for key in keys)
        if self.first_episodes is not None:
            episodes = episodes + self.first_episodes[self.batch["dataset_index"][: self.own].cpu()]
        return digest(episodes.numpy(), frames.numpy())


class Feed(Protocol):
    """Endless batches, and the position in the data."""

    @property
    def dataset(self) -> TrainingData:
        """The dataset, or mixture of datasets, that the batches are from."""

    @property
    def order(self) -> dict[str, Any]:
        """The parameters of the order, for the log of receipts."""

    def batches(self) -> Iterator[StepBatch]:
        """Yield the batches of one epoch after the other, from the current position."""

    def save(self, folder: Path, step: int) -> None:
        """Write the position after the last yielded batch to a checkpoint."""

    def resume(self, folder: Path) -> None:
        """Continue from a checkpoint, on any number of processes."""

    def close(self) -> None:
        """End the worker processes."""


def describe_batches(
    batches: Iterable[Batch],
    cut: Cut,
    num_frames: int,
    cursor: Cursor,
    count_own: Callable[[Cut, int, int], int],
) -> Iterator[StepBatch]:
    """Yield the batches of an epoch, each with its epoch and position.

    Args:
        batches: The batches from `cursor` to the end of the epoch.
        cut: This process's share of a step.
        num_frames: Frames of an epoch.
        cursor: The position of the first batch.
        count_own: Takes a cut, a number of frames and a position; returns how many leading samples
            of the batch at that position have their own position.
    """
    for batch in batches:
        after = advance(cut, num_frames, cursor, 1)
        stop = after.position if after.epoch == cursor.epoch else num_frames
        own = count_own(cut, num_frames, cursor.position)
        yield StepBatch(batch, cursor.epoch, stop, own)
        cursor = after


def action_window(meta: LeRobotDatasetMetadata, num_actions: int) -> dict[str, list[float]]:
    """Return the delta timestamps of a chunk of actions: the current one and those after it."""
    return {"action": [step / meta.fps for step in range(num_actions)]}
