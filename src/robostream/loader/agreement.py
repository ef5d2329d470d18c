# SPDX-License-Identifier: Apache-2.0
"""Which epoch the workers of a plain torch DataLoader are on.

A plain DataLoader does not tell its dataset that an iterator begins: its workers, new copies of the
dataset or old ones, just iterate. But all workers of one iterator have the same base seed, which
torch draws anew for each iterator. So the first worker that comes with a new seed is given the next
epoch, and the others find it by that seed. A user who sets the same torch seed before every epoch
makes torch draw the same base seed, and gets the same epoch again.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
import numpy.typing as npt

# Iterators that may live at a time.
_ROWS = 64
_VERSION, _SEED, _LAP, _EPOCH, _USED = range(5)


class EpochAgreement:
    """A table of the epochs given out, in memory that forked and spawned workers share."""

    def __init__(self) -> None:
        self._cells: Any = RawArray("q", _ROWS * 5)
        self._lock = multiprocessing.Lock()

    def epoch_of(self, version: int, seed: int, lap: int, first: int) -> int:
        """Return the epoch of an iterator, the same for all its workers.

        Args:
            version: How often the dataset's place was set; a new version begins anew at `first`.
            seed: The base seed of the iterator.
            lap: How many iterators this worker process has begun before, if it is kept.
            first: The epoch of the first iterator of the version.
        """
        with self._lock:
            rows = np.frombuffer(self._cells, np.int64).reshape(_ROWS, 5)
            own = rows[(rows[:, _USED] > 0) & (rows[:, _VERSION] == version)]
            known = own[(own[:, _SEED] == seed) & (own[:, _LAP] == lap)]
            if len(known):
                return int(known[0, _EPOCH])
            epoch = int(own[:, _EPOCH].max()) + 1 if len(own) else first
            self._enter(rows, [version, seed, lap, epoch])
            return epoch

    def __getstate__(self) -> dict[str, Any]:
        # Shared memory travels to a process being spawned, and nowhere else.
        return self.__dict__ if get_spawning_popen() is not None else {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.__dict__.update(state)

    @staticmethod
    def _enter(rows: npt.NDArray[np.int64], row: list[int]) -> None:
        place = int(rows[:, _USED].argmin())
        rows[place] = [*row, int(rows[:, _USED].max()) + 1]
