# SPDX-License-Identifier: Apache-2.0
"""The rows of the suite's table: a dataset, a mode, and what is set beyond the batch size."""

from __future__ import annotations

from dataclasses import dataclass

# `bench stream` has numbers of its own for these two. With "auto" the loader chooses, as it does
# for somebody who sets nothing.
_NOTHING = ("--num_workers", "auto", "--prefetch_factor", "auto")


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    Attributes:
        name: Its label in file names and plots.
        shape: The dataset.
        setting: What is set, in words.
        mode: "single" or "sarm".
        batch_size: Samples per batch.
        flags: More flags of `bench stream`.
    """

    name: str
    shape: str
    setting: str = "nothing"
    mode: str = "single"
    batch_size: int = 32
    flags: tuple[str, ...] = _NOTHING


CASES = (
    Case("nothing-set", "av1"),
    Case("nothing-set", "av1", mode="sarm", batch_size=16),
    Case("one-worker", "av1", "1 worker", flags=("--num_workers", "1", *_NOTHING[2:])),
    Case(
        "small-cache",
        "av1",
        "frame cache of 512 MiB, a quarter of the pictures",
        flags=(*_NOTHING, "--frame_cache_bytes", "512MiB"),
    ),
    Case("one-row-group", "av1-one-group"),
    Case("av1-640x480", "av1-640"),
    Case("h264-g250", "h264"),
    Case("images", "images"),
)
# The case whose first minute is shown.
FIRST_MINUTE = CASES[0]
