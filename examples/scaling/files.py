# SPDX-License-Identifier: Apache-2.0
"""Synced files, and logs that are cut back when a run resumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file and sync it to disk."""
    with path.open("w") as file:
        json.dump(value, file, indent=4)
        file.flush()
        os.fsync(file.fileno())


def write_tensors(path: Path, value: Any) -> None:
    """Write nested tensors and plain values, and sync the file to disk."""
    with path.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def read_tensors(path: Path) -> Any:
    """Return the values of a file from `write_tensors`, on the CPU."""
    return torch.load(path, map_location="cpu", weights_only=True)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LineLog:
    """A file of JSON lines about the steps of a run.

    Opening it removes the lines after `step`: a killed run has logged steps after its last
    checkpoint, and the resumed run repeats them. The header, a line without a step, stays unless a
    new run starts.
    """

    def __init__(self, path: Path, step: int) -> None:
        kept = [line for line in _whole_lines(path) if line.get("step", 1) <= step]
        temp = path.with_name(f".{path.name}.part")
        temp.write_text("".join(json.dumps(line) + "\n" for line in kept))
        temp.replace(path)
        self.is_empty = not kept
        self._file = path.open("a")

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Sync all lines to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a log; a kill may have truncated the last one."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
