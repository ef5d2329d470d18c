# SPDX-License-Identifier: Apache-2.0
"""Receipts of the frames trained on, which detect any difference from the planned order.

Each process computes a digest of the frames in its batch. The sum over all processes is the digest
of the step, and the sum over the steps is the receipt of the epoch so far. The log has one line per
step, in the format of `robostream order`, whose `--compare` finds the first step that differs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.scaling.feed import StepBatch
from examples.scaling.files import LineLog, write_json
from robostream.plan import format_receipt

_SAVED = "receipt.json"


class Receipts:
    """The running receipt of a run, and its log in the main process."""

    def __init__(self, log: LineLog | None, order: dict[str, Any]) -> None:
        self._log = log
        self._epoch, self._sum = 0, 0
        if log is not None and log.is_empty:
            log.write({"order_log": 1} | order)

    def add(self, step: int, batch: StepBatch, digest: int) -> None:
        """Add a step; `digest` is the sum over all processes."""
        before = self._sum if batch.epoch == self._epoch else 0
        self._epoch, self._sum = batch.epoch, (before + digest) % (1 << 64)
        if self._log is not None:
            line = {"step": step, "epoch": batch.epoch, "stop": batch.stop}
            receipts = {"digest": format_receipt(digest), "receipt": format_receipt(self._sum)}
            self._log.write(line | receipts)

    def save(self, folder: Path) -> None:
        """Write the receipt to a checkpoint."""
        write_json(folder / _SAVED, {"epoch": self._epoch, "receipt": format_receipt(self._sum)})

    def resume(self, folder: Path) -> None:
        """Load the receipt of a checkpoint."""
        saved = json.loads((folder / _SAVED).read_text())
        self._epoch, self._sum = saved["epoch"], int(saved["receipt"], 16)
