# SPDX-License-Identifier: Apache-2.0
"""Page-locked slots: only from such memory does a copy to a GPU run by itself."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch

from robostream.crew import ByteArray
from robostream.loader.batch_slots import BatchSlots

logger = logging.getLogger(__name__)


class PinnedSlots:
    """Page-locks slots when they are first copied from.

    Args:
        slots: The slots.
        settle: Waits until nothing is copied from them any more.
    """

    def __init__(self, slots: BatchSlots, settle: Callable[[], object]) -> None:
        self._begin = slots.memory.ctypes.data
        self._slot_bytes = slots.format.slot_bytes
        self._num_slots = slots.memory.nbytes // self._slot_bytes
        self._tried: set[int] = set()
        self._addresses: list[int] = []
        weakref.finalize(self, _unpin, self._addresses, slots.memory, settle)

    def pin(self, content: ByteArray) -> None:
        """Page-lock the slot with these bytes, unless it is done, or they are a copy elsewhere."""
        slot = (content.ctypes.data - self._begin) // self._slot_bytes
        if slot in self._tried or not 0 <= slot < self._num_slots:
            return
        self._tried.add(slot)
        address = self._begin + slot * self._slot_bytes
        error = int(_cudart().cudaHostRegister(address, self._slot_bytes, 0))
        if error:
            logger.warning("CUDA error %d: a slot is not page-locked; copies are slower", error)
        else:
            self._addresses.append(address)


def _unpin(addresses: list[int], memory: ByteArray, settle: Callable[[], object]) -> None:
    """Let go of pages; `memory` is held so that they are still there."""
    del memory
    if addresses:
        settle()
    for address in addresses:
        _cudart().cudaHostUnregister(address)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
