# SPDX-License-Identifier: Apache-2.0
"""Receipts of what was trained on: proof that every frame came once, whatever happened to the run.

Each process digests the frames of its batch as they were delivered; the digests of all processes
add up to that of the step, those of the steps to that of the epoch so far. The log has one line per
step, in the form of `robostream order`, whose `--compare` names the step at which two runs fork.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.scaling.feed import BatchBuilder
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

    def add(self, step: int, delivery: BatchBuilder, digest: int) -> None:
        """Count a step; `digest` is that of all processes."""
        before = self._sum if delivery.epoch == self._epoch else 0
        self._epoch, self._sum = delivery.epoch, (before + digest) % (1 << 64)
        if self._log is not None:
            line = {"step": step, "epoch": delivery.epoch, "stop": delivery.stop}
            receipts = {"digest": format_receipt(digest), "receipt": format_receipt(self._sum)}
            self._log.write(line | receipts)

    def save(self, folder: Path) -> None:
        """Write the receipt into a checkpoint."""
        write_json(folder / _SAVED, {"epoch": self._epoch, "receipt": format_receipt(self._sum)})

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        saved = json.loads((folder / _SAVED).read_text())
        self._epoch, self._sum = saved["epoch"], int(saved["receipt"], 16)
