# SPDX-License-Identifier: Apache-2.0
"""What the consumer and its workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robostream.assemble import SampleLayout
from robostream.crew.batch_memory import BatchFormat
from robostream.plan import Cut
from robostream.stream import Budgets, SharedShape


@dataclass(frozen=True, slots=True)
class Recipe:
    """What all workers of a crew are told once; its arrays are shared.

    Attributes:
        layout: How samples lie in a batch.
        batches: How batches lie in their slots.
        budgets: What each worker may use.
        shared: Where decoded pictures lie that are kept for all; None if they are not.
    """

    layout: SampleLayout
    batches: BatchFormat
    budgets: Budgets
    shared: SharedShape | None


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a worker is. With it come the recipe, the batches, the counters and kept pictures."""

    worker: int
    num_workers: int


@dataclass(frozen=True, slots=True)
class Begin:
    """An iterator begins, at `start` of an epoch whose plan comes with the message."""

    tour: int
    cut: Cut
    start: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Slot `slot` is batch `step` of an iterator."""

    tour: int
    step: int
    slot: int


@dataclass(frozen=True, slots=True)
class End:
    """An iterator is closed."""

    tour: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has let go of an iterator and writes to none of its slots any more."""

    tour: int


@dataclass(frozen=True, slots=True)
class Built:
    """A worker has written its parts of a batch; texts by key and place."""

    tour: int
    step: int
    texts: dict[str, dict[int, Any]]


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not build its part of a batch.

    Attributes:
        tour: The iterator.
        step: The batch.
        episode: The episode of the sample that could not be built.
        frame: Its frame.
        position: Its position in the epoch.
        error: The error, or a text in place of one that cannot travel.
        trace: Where in a worker process it happened; empty in the consumer's own.
    """

    tour: int
    step: int
    episode: int
    frame: int
    position: int
    error: Exception
    trace: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """A worker cannot go on at all; where it happened."""

    trace: str
