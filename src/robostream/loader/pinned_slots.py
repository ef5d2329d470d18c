# SPDX-License-Identifier: Apache-2.0
"""Page-locked slots: only from such memory does a copy to a GPU run by itself."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from robostream.loader.batch_slots import BatchSlots
from robostream.workers import ByteArray

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
        self._tried: set[int] = set()
        self._addresses: list[int] = []
        weakref.finalize(self, _unpin, os.getpid(), self._addresses, slots.memory, settle)

    def pin(self, slot: int) -> None:
        """Page-lock a slot, unless that was tried before."""
        if slot in self._tried:
            return
        self._tried.add(slot)
        address = self._begin + slot * self._slot_bytes
        error = int(_cudart().cudaHostRegister(address, self._slot_bytes, 0))
        if error:
            logger.warning("CUDA error %d: a slot is not page-locked; copies are slower", error)
            _forget_error()
        else:
            self._addresses.append(address)


def _unpin(
    process: int, addresses: list[int], memory: ByteArray, settle: Callable[[], object]
) -> None:
    """Let go of pages; `memory` is held so that they are still there."""
    del memory
    if not addresses or process != os.getpid():
        return  # a fork has not locked them, and cannot use CUDA
    with contextlib.suppress(RuntimeError):  # after a CUDA error nothing is copied any more
        settle()
    for address in addresses:
        _cudart().cudaHostUnregister(address)


def _forget_error() -> None:
    """Use up the error that CUDA remembers: torch would blame its next kernel for it."""
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda")


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
