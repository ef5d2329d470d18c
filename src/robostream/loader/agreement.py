# SPDX-License-Identifier: Apache-2.0
"""Which epoch the workers of a plain torch DataLoader are on.

A plain DataLoader does not tell its dataset that an iterator begins: each of its workers has a copy
of the dataset, new or kept, and just iterates over it. But all workers of one iterator have the
same base seed, which torch draws anew for each iterator. So the first worker that comes with a new
seed is given the next epoch, and the others find that epoch by the seed. A user who sets the same
torch seed before every epoch makes torch draw the same base seed, and gets the same epoch again.
"""

from __future__ import annotations

import copy
import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.device import create_memory

# How many iterators the table has room for; a new one replaces the oldest.
_ROWS = 64
_COLUMNS = 5
_VERSION, _SEED, _LAP, _EPOCH, _TURN = range(_COLUMNS)
_NBYTES = 8 * _ROWS * _COLUMNS

_Table = npt.NDArray[np.int64]


class EpochAgreement:
    """A table of the epochs given out, in a nameless file that forked and spawned workers share."""

    def __init__(self) -> None:
        self._take(create_memory(_NBYTES))

    def epoch_of(self, version: int, seed: int, lap: int, first: int) -> int:
        """Return the epoch of an iterator, the same for all its workers.

        Args:
            version: How often the dataset's bookmark was set; a new version begins anew at `first`.
            seed: The base seed of the iterator.
            lap: How many iterators this copy of the dataset has begun before; more than 0 if the
                worker process is kept from one iterator to the next.
            first: The epoch of the first iterator of the version.
        """
        with self._table() as rows:
            known = _find(rows, version, seed, lap)
            if known is not None:
                return int(rows[known, _EPOCH])
            epoch = max(first, _last(rows, version) + 1)
            turn = int(rows[:, _TURN].max()) + 1
            rows[int(rows[:, _TURN].argmin())] = version, seed, lap, epoch, turn
            return epoch

    def move(self, version: int, seed: int, lap: int, epoch: int) -> None:
        """Note that an iterator goes on in another epoch, because it was given a state."""
        with self._table() as rows:
            known = _find(rows, version, seed, lap)
            if known is not None:
                rows[known, _EPOCH] = epoch

    def last(self, version: int) -> int:
        """Return the last epoch that any worker has begun with this version; -1 if none has."""
        with self._table() as rows:
            return _last(rows, version)

    def for_copy(self) -> EpochAgreement:
        """Return the table for a copy of the dataset.

        A copy that is made while a process is being spawned is for a worker of a plain loader, and
        shares this table. Any other copy has a table of its own.
        """
        return self if get_spawning_popen() is not None else copy.copy(self)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            return {"path": f"/proc/{os.getpid()}/fd/{self._fd}"}
        return {"content": os.pread(self._fd, _NBYTES, 0)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "path" in state:
            self._take(os.open(state["path"], os.O_RDWR))
        else:
            self._take(create_memory(_NBYTES))
            os.pwrite(self._fd, state["content"], 0)

    def _take(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    @contextmanager
    def _table(self) -> Iterator[_Table]:
        """Lock the table for this process, and write its rows back after the block."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            content = bytearray(os.pread(self._fd, _NBYTES, 0))
            yield np.frombuffer(content, np.int64).reshape(_ROWS, _COLUMNS)
            os.pwrite(self._fd, content, 0)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


def _find(rows: _Table, version: int, seed: int, lap: int) -> int | None:
    is_it = (rows[:, [_VERSION, _SEED, _LAP]] == (version, seed, lap)).all(axis=1)
    found = np.flatnonzero(is_it & (rows[:, _TURN] > 0))
    return int(found[0]) if len(found) else None


def _last(rows: _Table, version: int) -> int:
    own = (rows[:, _TURN] > 0) & (rows[:, _VERSION] == version)
    return int(rows[own, _EPOCH].max(initial=-1))
