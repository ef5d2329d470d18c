# SPDX-License-Identifier: Apache-2.0
"""Batch memory that is used again once nobody holds the batch any more.

Fresh pages cost more than copying into them: the kernel clears each one. So the arrays behind
batches are kept, and one is given out again when the last tensor on it is gone.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt


class BufferPool:
    """Gives out arrays; thread-safe. A tensor made with torch.from_numpy keeps its array taken."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._arrays: dict[tuple[tuple[int, ...], str], list[npt.NDArray[Any]]] = {}
        self._nbytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays kept for use again, taken or free."""
        return self._nbytes

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialised array nobody else holds."""
        key = (shape, np.dtype(dtype).str)
        with self._lock:
            kept = self._arrays.setdefault(key, [])
            for place in range(len(kept)):
                if _references(kept, place) == _FREE:
                    return kept[place]
            array = np.empty(shape, dtype)
            if self._nbytes + array.nbytes <= self._max_bytes:
                kept.append(array)
                self._nbytes += array.nbytes
            return array


def _references(kept: list[npt.NDArray[Any]], place: int) -> int:
    return sys.getrefcount(kept[place])


# What an array counts that only its list holds; interpreters differ, so it is measured.
_FREE = _references([np.empty(1)], 0)
