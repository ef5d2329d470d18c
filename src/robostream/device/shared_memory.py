# SPDX-License-Identifier: Apache-2.0
"""Memory that several processes map: objects whose arrays lie in it, and slots for batches.

The memory has no name: processes pass it on as a file descriptor. The system frees it when the last
process that holds it ends, even by a kill. It is not in /dev/shm, which is small in containers.

Slots have one size; each holds every array of one batch. The tensors of a delivered batch are views
of the slot it was built in. The slot is reused once the last of these tensors is gone. While a
consumer holds `max_held` batches, it gets further ones as copies, so that workers never wait for a
slot that the consumer holds.
"""

from __future__ import annotations

import contextlib
import logging
import math
import mmap
import os
import pickle
import tempfile
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from robostream.assemble import ArrayLayout, Arrays
from robostream.byte_sizes import format_bytes
from robostream.errors import WorkerError

logger = logging.getLogger(__name__)

_NUMBER_BYTES = 8
_ALIGN = 64
LESS_MEMORY = (
    "Lower frame_cache_bytes, batch_size, prefetch_factor or num_workers, or raise the limits of "
    "the process (ulimit -v, ulimit -f)."
)
# Arrays begin at page boundaries, where vector instructions and copies are fast.
_ALIGN_BYTES = 4096
# Arrays below this size lie side by side, so that one copy takes them all. Arrays of bytes do not:
# they are images, which are often dropped before the rest.
_SMALL_BYTES = 1 << 20

ByteArray = npt.NDArray[np.uint8]


def create_memory(nbytes: int) -> int:
    """Return a descriptor of `nbytes` zeros; a page takes memory once it is written to."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("robostream", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, max(nbytes, 1))
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise _no_memory(nbytes, error) from error
    return fd


def map_memory(fd: int) -> npt.NDArray[np.uint8]:
    """Return the memory of a descriptor, which may be closed afterwards."""
    return np.frombuffer(_map(fd, mmap.PROT_READ | mmap.PROT_WRITE), np.uint8)


def create_and_map(nbytes: int) -> tuple[int, npt.NDArray[np.uint8]]:
    """Return a descriptor of at least `nbytes` zeros, and the memory."""
    fd = create_memory(nbytes)
    try:
        return fd, map_memory(fd)
    except WorkerError:
        os.close(fd)
        raise


def pack(content: object) -> int:
    """Return a descriptor of memory that holds a copy of an object.

    All processes that unpack it share the memory of its arrays. Functions and classes defined in a
    script or a notebook are copied by value, those in modules by name.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = cloudpickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    sizes = np.array([part.nbytes for part in parts], np.int64)
    starts = _starts(sizes)
    fd, memory = create_and_map(starts[-1])
    memory[: _NUMBER_BYTES * (1 + len(sizes))].view(np.int64)[:] = [len(sizes), *sizes]
    for start, part in zip(starts, parts, strict=False):
        memory[start : start + part.nbytes] = np.frombuffer(part, np.uint8)
    return fd


def unpack(fd: int) -> Any:
    """Return the object; its arrays lie in the shared memory and must not be written to."""
    memory = memoryview(_map(fd, mmap.PROT_READ))
    (count,) = np.frombuffer(memory, np.int64, 1)
    sizes = np.frombuffer(memory, np.int64, count, _NUMBER_BYTES)
    starts = _starts(sizes)
    parts = [memory[at : at + n] for at, n in zip(starts, sizes.tolist(), strict=False)]
    return pickle.loads(parts[0], buffers=parts[1:])


def _starts(sizes: npt.NDArray[np.int64]) -> list[int]:
    """Return where each part begins after the list of sizes, and where the last one ends."""
    lengths = np.array([_NUMBER_BYTES * (1 + len(sizes)), *sizes])
    starts: list[int] = np.cumsum(-(-lengths // _ALIGN) * _ALIGN).tolist()
    return starts


def _map(fd: int, access: int) -> mmap.mmap:
    nbytes = os.fstat(fd).st_size
    try:
        return mmap.mmap(fd, nbytes, prot=access)
    except (OSError, OverflowError, ValueError) as error:
        raise _no_memory(nbytes, error) from error


def _no_memory(nbytes: int, error: Exception) -> WorkerError:
    needed, why = format_bytes(nbytes), getattr(error, "strerror", None) or error
    return WorkerError(f"the loader needs {needed} of memory in one piece: {why}. {LESS_MEMORY}")


@dataclass(frozen=True, slots=True)
class BatchFormat:
    """Where the arrays of a batch lie in a slot.

    Attributes:
        batch_size: Samples that fit into a slot.
        arrays: Offset, shape of one sample and dtype, by key.
        small_bytes: Bytes at the start of a slot that hold all small arrays.
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
            # A tensor has no numpy types; all arrays on a GPU are bytes.
            values = part if dtype == np.uint8 else part.view(dtype)
            found[key] = values.reshape(size, *shape)
        return found


def format_batch(arrays: Mapping[str, ArrayLayout], batch_size: int) -> BatchFormat:
    """Return how batches of `batch_size` samples with these arrays lie in slots. Pure."""
    kinds = {key: (tuple(shape), np.dtype(kind)) for key, (shape, kind) in arrays.items()}
    nbytes = {key: batch_size * math.prod(s) * dtype.itemsize for key, (s, dtype) in kinds.items()}
    small = {k for k, (_, dtype) in kinds.items() if nbytes[k] < _SMALL_BYTES and dtype != np.uint8}
    offsets: dict[str, int] = {}
    at = small_bytes = 0
    for key in sorted(arrays, key=lambda key: key not in small):
        offsets[key] = at
        at += -(-nbytes[key] // _ALIGN_BYTES) * _ALIGN_BYTES
        if key in small:
            small_bytes = at
    places = {key: (offsets[key], shape, dtype.str) for key, (shape, dtype) in kinds.items()}
    return BatchFormat(batch_size, places, small_bytes, max(at, _ALIGN_BYTES))


class BatchSlots:
    """Slots in memory that workers share. For one thread; any thread may drop a batch.

    Args:
        batches: How batches lie in slots.
        num_slots: The number of slots; a slot takes memory once it is written to.
        max_held: How many slots the consumer may hold at a time.
    """

    def __init__(self, batches: BatchFormat, num_slots: int, max_held: int) -> None:
        self.format = batches
        self.fd = create_memory(batches.slot_bytes * num_slots)
        weakref.finalize(self, os.close, self.fd)
        self.memory = map_memory(self.fd)
        self._address = self.memory.ctypes.data
        # The slot freed last is taken first: its pages are already in memory.
        self._free = deque(reversed(range(num_slots)))
        self._max_held = max_held
        # `_take_back` checks which slots are still in use. A callback would run wherever a batch is
        # dropped, and an interrupt in it would lose the slot.
        self._held: dict[int, weakref.ref[_HeldSlot]] = {}
        self._has_warned = False

    @property
    def num_free(self) -> int:
        """How many slots can be taken."""
        self._take_back()
        return len(self._free)

    def take(self) -> int | None:
        """Return a free slot, or None if all are in use."""
        self._take_back()
        # No check first: another thread may take the last slot right after it.
        with contextlib.suppress(IndexError):
            return self._free.pop()
        return None

    def give_all(self, slots: list[int]) -> None:
        """Free slots that were not delivered."""
        self._free.extend(slots)

    def lend(self, slot: int) -> ByteArray:
        """Return the bytes of a slot, which is free again when all views of them are gone."""
        nbytes = self.format.slot_bytes
        held = _HeldSlot(self.memory, self._address + slot * nbytes, nbytes)
        self._held[slot] = weakref.ref(held)
        return np.asarray(held)

    def deliver(self, slot: int, size: int) -> Arrays:
        """Return the batch in a slot, or copies if the consumer holds as many as it may."""
        self._take_back()
        if len(self._held) < self._max_held:
            return self.format.view_slot(self.lend(slot), size)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the training loop holds %d batches at a time; while it does, further batches are "
                "copied into memory of their own, which is slower",
                self._max_held,
            )
        # Array by array: a consumer that keeps one must not keep all.
        arrays = self.format.view(self.memory, slot, size)
        copies = {key: array.copy() for key, array in arrays.items()}
        self._free.append(slot)
        return copies

    def _take_back(self) -> None:
        """Free the slots of batches that the consumer no longer holds."""
        for slot, held in tuple(self._held.items()):
            if held() is None and self._held.pop(slot, None) is not None:
                self._free.append(slot)


class _HeldSlot:
    """A slot's memory, in the form that numpy makes arrays from; lives as long as one of them."""

    def __init__(self, memory: ByteArray, address: int, nbytes: int) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
