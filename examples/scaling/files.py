# SPDX-License-Identifier: Apache-2.0
"""Files that are on the disk when they are said to be, and logs that can be taken back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file and wait until the disk has it."""
    with path.open("w") as file:
        json.dump(value, file, indent=4)
        file.flush()
        os.fsync(file.fileno())


def write_tensors(path: Path, value: Any) -> None:
    """Write a nest of tensors and plain values and wait until the disk has it."""
    with path.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def read_tensors(path: Path) -> Any:
    """Return what `write_tensors` wrote, on the CPU."""
    return torch.load(path, map_location="cpu", weights_only=True)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LineLog:
    """A file of JSON lines about the steps of a run.

    A run that was killed has lines of steps after its last checkpoint; they come again, so those
    after `step` are taken out when the log is opened. The head, a line without a step, stays
    unless the run begins anew.
    """

    def __init__(self, path: Path, step: int) -> None:
        kept = [line for line in _whole_lines(path) if line.get("step", 1) <= step]
        aside = path.with_name(f".{path.name}.part")
        aside.write_text("".join(json.dumps(line) + "\n" for line in kept))
        aside.replace(path)
        self.is_empty = not kept
        self._file = path.open("a")

    def write(self, line: dict[str, Any]) -> None:
        """Add a line."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Wait until the disk has all lines."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; a kill may have cut the last one short."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
