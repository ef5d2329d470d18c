# SPDX-License-Identifier: Apache-2.0
"""The slots in which batches are built and delivered, and which of them are free.

The tensors of a delivered batch are views of the slot it was built in. The slot is used again once
the last of these tensors is gone. While a consumer holds `max_held` batches, it gets further ones
as copies, so that workers never wait for a slot that the consumer holds.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque

import numpy as np

from robostream.assemble import Arrays
from robostream.workers import BatchFormat, ByteArray, create_memory, map_memory

logger = logging.getLogger(__name__)


class BatchSlots:
    """Slots in memory that workers share. For one thread; any thread may drop a batch.

    Args:
        batches: How batches lie in slots.
        num_slots: How many slots there are; a slot takes memory once it is written to.
        max_held: How many slots the consumer may hold at a time.
    """

    def __init__(self, batches: BatchFormat, num_slots: int, max_held: int) -> None:
        self.format = batches
        self.fd = create_memory(batches.slot_bytes * num_slots)
        weakref.finalize(self, os.close, self.fd)
        self.memory = map_memory(self.fd)
        self._address = self.memory.ctypes.data
        # The slot freed last is taken first: its pages are in memory already.
        self._free = deque(reversed(range(num_slots)))
        self._max_held = max_held
        # `_take_back` asks which leases still exist. A callback would run wherever a batch is
        # dropped, and an interrupt in it would lose the slot.
        self._held: dict[int, weakref.ref[_Lease]] = {}
        self._said = False

    @property
    def num_free(self) -> int:
        """How many slots can be taken."""
        self._take_back()
        return len(self._free)

    def take(self) -> int | None:
        """Return a free slot, or None if all are in use."""
        self._take_back()
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give_all(self, slots: list[int]) -> None:
        """Take back slots that were not delivered."""
        self._free.extend(slots)

    def lend(self, slot: int) -> ByteArray:
        """Return the bytes of a slot; the slot comes back when all views of them are gone."""
        nbytes = self.format.slot_bytes
        lease = _Lease(self.memory, self._address + slot * nbytes, nbytes)
        self._held[slot] = weakref.ref(lease)
        return np.asarray(lease)

    def deliver(self, slot: int, size: int) -> Arrays:
        """Return the batch in a slot, or copies if the consumer holds as many as it may."""
        self._take_back()
        if len(self._held) < self._max_held:
            return self.format.view_slot(self.lend(slot), size)
        self._say_once()
        # Array by array: who goes on holding one must not hold all.
        arrays = self.format.view(self.memory, slot, size)
        copies = {key: array.copy() for key, array in arrays.items()}
        self._free.append(slot)
        return copies

    def _take_back(self) -> None:
        """Free the slots of batches that the consumer no longer holds."""
        for slot, lease in tuple(self._held.items()):
            if lease() is None and self._held.pop(slot, None) is not None:
                self._free.append(slot)

    def _say_once(self) -> None:
        if not self._said:
            self._said = True
            logger.warning(
                "the training loop holds %d batches at a time; while it does, further batches are "
                "copied into memory of their own, which is slower",
                self._max_held,
            )


class _Lease:
    """A slot's memory, in the form numpy makes arrays from; exists as long as one of them does."""

    def __init__(self, memory: ByteArray, address: int, nbytes: int) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
