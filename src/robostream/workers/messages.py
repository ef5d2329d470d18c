# SPDX-License-Identifier: Apache-2.0
"""The messages between the consumer and its workers. `tour` is always an iterator's number."""

from __future__ import annotations

from dataclasses import dataclass

from robostream.assemble import SampleLayout
from robostream.batches import SharedFrameLayout, Texts, WorkerBudgets
from robostream.device import BatchFormat, DeviceConfig
from robostream.plan import Cut


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What all workers of a crew are told when they start; they share its arrays.

    Attributes:
        layout: How samples lie in a batch.
        batches: How batches lie in their slots.
        budgets: What each worker may use.
        shared: Where decoded pictures lie that all workers share; None if each keeps its own.
        on_device: Where pictures of batches lie that a GPU decodes; None if it decodes none.
    """

    layout: SampleLayout
    batches: BatchFormat
    budgets: WorkerBudgets
    shared: SharedFrameLayout | None
    on_device: DeviceConfig | None = None


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Which worker the receiver is.

    The descriptors of the recipe, the batches, the counters and, if they are shared, the decoded
    pictures come with it.
    """

    worker: int
    num_workers: int


@dataclass(frozen=True, slots=True)
class Begin:
    """An iterator begins at position `start`; the descriptor of its epoch's plan comes with it."""

    tour: int
    cut: Cut
    start: int


@dataclass(frozen=True, slots=True)
class Assign:
    """The batches of an iterator from `step` on are to be built, one in each of `slots`."""

    tour: int
    step: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """An iterator is closed."""

    tour: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has closed an iterator and writes to none of its slots any more."""

    tour: int


@dataclass(frozen=True, slots=True)
class Built:
    """A worker has written its parts of all batches up to `step`; texts by step."""

    tour: int
    step: int
    texts: dict[int, Texts]


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not build its part of a batch.

    Attributes:
        tour: The iterator.
        step: The batch.
        episode: The episode of the sample that could not be built.
        frame: Its frame.
        position: Its position in the epoch.
        error: The error; a RuntimeError with its text if it cannot be pickled.
        trace: The traceback in the worker process; empty if the consumer built the batch itself.
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
    """A worker ends because of an error outside of building; `trace` is the traceback."""

    trace: str
