# SPDX-License-Identifier: Apache-2.0
"""What memory a loader takes, for benchmarks to print."""

from __future__ import annotations

from robostream.loader.budgets import FrameBudget
from robostream.loader.dataloader import StreamingDataLoader


def frame_budget(loader: StreamingDataLoader) -> FrameBudget:
    """Return the memory for decoded pictures of this rank, and why it is that much.

    That of its workers, who are started if they are not: "auto" depends on the memory that is free
    at that moment.
    """
    return loader._open().frames


def batch_bytes(loader: StreamingDataLoader) -> int:
    """Return the bytes of one batch's arrays, as workers build it."""
    return loader._batch_bytes()
