# SPDX-License-Identifier: Apache-2.0
"""Which epoch the workers of a plain torch DataLoader are on.

A plain DataLoader does not tell its dataset that an iterator begins: its workers, new copies of the
dataset or old ones, just iterate. But all workers of one iterator have the same base seed, which
torch draws anew for each iterator. So the first worker that comes with a new seed is given the next
epoch, and the others find it by that seed. A user who sets the same torch seed before every epoch
makes torch draw the same base seed, and gets the same epoch again.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.crew import create_memory

# Iterators that may live at a time; the oldest is forgotten.
_ROWS = 64
_COLUMNS = 5
_VERSION, _SEED, _LAP, _EPOCH, _TURN = range(_COLUMNS)


class EpochAgreement:
    """A table of the epochs given out, in a nameless file that forked and spawned workers share."""

    def __init__(self) -> None:
        self._take(create_memory(8 * _ROWS * _COLUMNS))

    def epoch_of(self, version: int, seed: int, lap: int, first: int) -> int:
        """Return the epoch of an iterator, the same for all its workers.

        Args:
            version: How often the dataset's place was set; a new version begins anew at `first`.
            seed: The base seed of the iterator.
            lap: How many iterators this worker process has begun before, if it is kept.
            first: The epoch of the first iterator of the version.
        """
        with self._table() as rows:
            own = rows[(rows[:, _TURN] > 0) & (rows[:, _VERSION] == version)]
            known = own[(own[:, _SEED] == seed) & (own[:, _LAP] == lap)]
            if len(known):
                return int(known[0, _EPOCH])
            epoch = int(own[:, _EPOCH].max()) + 1 if len(own) else first
            turn = int(rows[:, _TURN].max()) + 1
            rows[int(rows[:, _TURN].argmin())] = version, seed, lap, epoch, turn
            return epoch

    def has_begun(self, version: int) -> bool:
        """Return whether any worker has begun an iterator since the place was set."""
        with self._table() as rows:
            return bool(np.any((rows[:, _TURN] > 0) & (rows[:, _VERSION] == version)))

    def __getstate__(self) -> dict[str, Any]:
        # A process being spawned shares the table; any other copy has one of its own.
        is_spawned = get_spawning_popen() is not None
        return {"path": f"/proc/{os.getpid()}/fd/{self._fd}"} if is_spawned else {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state.get("path")
        self._take(os.open(path, os.O_RDWR) if path else create_memory(8 * _ROWS * _COLUMNS))

    def _take(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    @contextmanager
    def _table(self) -> Iterator[npt.NDArray[np.int64]]:
        """Give one process at a time the rows, and write them back."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            content = bytearray(os.pread(self._fd, 8 * _ROWS * _COLUMNS, 0))
            yield np.frombuffer(content, np.int64).reshape(_ROWS, _COLUMNS)
            os.pwrite(self._fd, content, 0)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
