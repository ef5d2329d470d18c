# SPDX-License-Identifier: Apache-2.0
"""Batches in shared memory: slots of one size, each holding every array of one batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import ArrayLayout

# Arrays begin at whole pages: vector instructions and copies are fast there.
_ALIGN_BYTES = 4096
# Arrays below this size lie side by side, so that all of them can be copied at once. Bytes do not:
# they are pictures, which are often dropped before the rest.
_SMALL_BYTES = 1 << 20

ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BatchFormat:
    """Where the arrays of a batch lie in a slot.

    Attributes:
        batch_size: Samples a slot has room for.
        arrays: Offset, shape of one sample and dtype, by key.
        small_bytes: Bytes at the beginning of a slot in which all small arrays lie.
        slot_bytes: Bytes of a slot.
    """

    batch_size: int
    arrays: dict[str, tuple[int, tuple[int, ...], str]]
    small_bytes: int
    slot_bytes: int

    def view(self, memory: Any, slot: int, size: int) -> dict[str, Any]:
        """Return the arrays of a batch of `size` samples in a slot of the memory.

        The memory is an array of bytes, or a tensor if all arrays are bytes.
        """
        begin = slot * self.slot_bytes
        return self.view_slot(memory[begin : begin + self.slot_bytes], size)

    def view_slot(self, content: Any, size: int) -> dict[str, Any]:
        """Return the arrays of a batch of `size` samples in the bytes of one slot."""
        found: dict[str, Any] = {}
        for key, (at, shape, name) in self.arrays.items():
            dtype = np.dtype(name)
            nbytes = size * math.prod(shape) * dtype.itemsize
            part = content[at : at + nbytes]
            # A tensor knows no types of numpy; those of a GPU are all bytes.
            values = part if dtype == np.uint8 else part.view(dtype)
            found[key] = values.reshape(size, *shape)
        return found


def format_batch(arrays: Mapping[str, ArrayLayout], batch_size: int) -> BatchFormat:
    """Return how batches of `batch_size` samples with these arrays lie in slots. Pure."""
    nbytes = {
        key: batch_size * math.prod(shape) * np.dtype(kind).itemsize
        for key, (shape, kind) in arrays.items()
    }
    is_small = {
        key: nbytes[key] < _SMALL_BYTES and np.dtype(kind) != np.uint8
        for key, (_, kind) in arrays.items()
    }
    offsets: dict[str, int] = {}
    at = small_bytes = 0
    for key in sorted(arrays, key=lambda key: not is_small[key]):
        offsets[key] = at
        at += -(-nbytes[key] // _ALIGN_BYTES) * _ALIGN_BYTES
        if is_small[key]:
            small_bytes = at
    places = {
        key: (offsets[key], tuple(shape), np.dtype(kind).str)
        for key, (shape, kind) in arrays.items()
    }
    return BatchFormat(batch_size, places, small_bytes, max(at, _ALIGN_BYTES))
