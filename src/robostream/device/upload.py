# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a slot to the tensors of a batch, on this side or on a device.

With a device, a thread uploads one batch ahead. 4:2:0 pictures travel as parcels and are drawn
there, unless the device decoded them and they lie there already. Only
`CudaUpload` and `PinnedSlots` need a GPU.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from robostream.assemble import CameraLayout
from robostream.device.draw import Tensors, draw_all
from robostream.device.gpu_memory import DeviceBatches
from robostream.device.shared_memory import BatchFormat, BatchSlots, ByteArray

logger = logging.getLogger(__name__)

# Makes the tensors of a batch from the bytes of a slot; with its number and the batch's size.
Draw = Callable[[ByteArray, int, int], Tensors]
# Slots that are being copied from at a time.
COPIES_IN_FLIGHT = 2
# When a program ends, it waits at most so long for the upload it has begun.
_LAST_UPLOAD_S = 10


class Finish(Protocol):
    """Turns slots into the tensors a consumer gets.

    Attributes:
        begins_early: Whether to begin with a batch before the consumer asks for it.
    """

    begins_early: bool

    def begin(self, slot: int, size: int) -> Callable[[], Tensors]:
        """Begin with a batch of `size` samples in a slot; return what returns its tensors."""


class Upload(Protocol):
    """Brings batches to a device."""

    def run(self, content: ByteArray, slot: int, size: int) -> tuple[Tensors, Any]:
        """Return a batch on the device, and what says when it is there; in a thread for that."""

    def hand_over(self, batch: Tensors, done: Any) -> Tensors:
        """Return the batch; in the thread that has asked for it."""


def choose_finish(
    device: torch.device | None,
    cameras: Sequence[CameraLayout],
    slots: BatchSlots,
    on_device: DeviceBatches | None,
    *,
    pin_memory: bool,
) -> Finish:
    """Return what makes tensors of slots, and of what lies on the device."""
    if device is None:
        return AsBuilt(slots, pin_memory=pin_memory and torch.cuda.is_available())
    copy = _Copy(device, slots.format)

    def draw(content: ByteArray, slot: int, size: int) -> Tensors:
        there = {} if on_device is None else on_device.view(slot, size)
        return draw_all(copy(content, size) | there, cameras)

    upload = CudaUpload(device, draw, slots) if device.type == "cuda" else CpuUpload(draw)
    return UploadThread(upload, slots)


class AsBuilt:
    """Delivers batches as they lie in their slots, or copies of them in page-locked memory."""

    begins_early = False

    def __init__(self, slots: BatchSlots, *, pin_memory: bool) -> None:
        self._slots = slots
        self._pin_memory = pin_memory

    def begin(self, slot: int, size: int) -> Callable[[], Tensors]:
        """Return what returns the batch."""
        arrays = self._slots.deliver(slot, size)
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        if self._pin_memory:
            tensors = {key: tensor.pin_memory() for key, tensor in tensors.items()}
        return lambda: tensors


class UploadThread:
    """Uploads batches in a thread, while the consumer works with the batch before.

    To tell a GPU what to do takes the processor about as long as the GPU takes to do it.
    """

    begins_early = True

    def __init__(self, upload: Upload, slots: BatchSlots) -> None:
        self._upload = upload
        self._slots = slots
        self._tasks: _Tasks = queue.SimpleQueue()
        # As a daemon it neither keeps the program from ending nor ends before its last loop.
        thread = threading.Thread(
            target=_work, args=(upload, self._tasks), name="robostream-upload", daemon=True
        )
        _list(thread, self._tasks)
        thread.start()

    def __del__(self) -> None:
        self._tasks.put(None)

    def begin(self, slot: int, size: int) -> Callable[[], Tensors]:
        """Begin an upload; return what waits for it and returns the batch."""
        upload, uploaded = self._upload, Future[tuple[Tensors, Any]]()
        task = uploaded, self._slots.lend(slot), slot, size
        if _IS_OVER.is_set():
            _do(upload, task)
        else:
            self._tasks.put(task)
        return lambda: upload.hand_over(*uploaded.result())


_Task = tuple["Future[tuple[Tensors, Any]]", ByteArray, int, int]
_Tasks = queue.SimpleQueue[_Task | None]
# Threads that upload, of loaders that are gone as well, and what each is told by; None ends it.
# Each is there until nothing of it runs any more: the last that it does is to let go of pages.
_THREADS: dict[threading.Thread, _Tasks] = {}
# Set when the program ends. What uses a loader even then uploads by itself.
_IS_OVER = threading.Event()


def _list(thread: threading.Thread, tasks: _Tasks) -> None:
    """Put a thread that is to start on the list, and take those off that have ended."""
    for other in list(_THREADS):
        if other.ident is not None and not other.is_alive():
            _THREADS.pop(other, None)
    _THREADS[thread] = tasks


def _work(upload: Upload, tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        _do(upload, task)
        # Until the next one comes, this one must not be held.
        del task


def _do(upload: Upload, task: _Task) -> None:
    uploaded, content, slot, size = task
    try:
        uploaded.set_result(upload.run(content, slot, size))
    except BaseException as error:  # who asked for the batch is told, whatever it is
        uploaded.set_exception(error)


def _end_all() -> None:
    """End all threads: one that comes back from torch while Python ends would abort the program."""
    _IS_OVER.set()
    threads, until = _THREADS.copy(), time.monotonic() + _LAST_UPLOAD_S
    for tasks in threads.values():
        tasks.put(None)
    for thread in threads:
        if thread.ident is not None:  # else it ends when it starts
            thread.join(max(0.0, until - time.monotonic()))


# What is registered last comes first when the program ends: what the program itself registered,
# then this, then finalizers, which let go of the memory that is copied from. They are registered
# with the first of them.
weakref.finalize(_end_all, int)
atexit.register(_end_all)


class _Copy:
    """Copies the arrays of a batch to a device; all small ones at once, as each copy costs time.

    Args:
        device: Where to.
        batches: How arrays lie in a slot.
    """

    def __init__(self, device: torch.device, batches: BatchFormat) -> None:
        self._device = device
        self._batches = batches
        self._small: list[tuple[str, torch.dtype, int, tuple[int, ...], tuple[int, ...]]] = []
        for key, (at, shape, name) in batches.arrays.items():
            if at < batches.small_bytes:
                like = torch.from_numpy(np.empty((batches.batch_size, *shape), name))
                begin = at // like.element_size()
                self._small.append((key, like.dtype, begin, shape, like.stride()))
        self._dtypes = {place[1] for place in self._small}

    def __call__(self, content: ByteArray, size: int) -> Tensors:
        """Return the arrays of a batch of `size` samples there."""
        small = self._copy(content[: self._batches.small_bytes])
        typed = {dtype: small.view(dtype) for dtype in self._dtypes}
        tensors = {
            # With `data`, a change of one in place is no change of the others to autograd.
            key: typed[dtype].as_strided((size, *shape), strides, begin).data
            for key, dtype, begin, shape, strides in self._small
        }
        for key, array in self._batches.view_slot(content, size).items():
            if key not in tensors:
                tensors[key] = self._copy(array)
        return tensors

    def _copy(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True, copy=True)


class CpuUpload:
    """An upload without a GPU, for tests: the batch is copied and drawn in memory."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def run(self, content: ByteArray, slot: int, size: int) -> tuple[Tensors, None]:
        """Return a batch."""
        return self._draw(content, slot, size), None

    def hand_over(self, batch: Tensors, done: None) -> Tensors:
        """Return a batch."""
        return batch


class CudaUpload:
    """Copies batches to a GPU beside the work that is queued there, and draws parcels.

    A batch may be used on the stream that was current when it was asked for, as any tensor made
    there. Its slot is used again once it has been copied and drawn.

    Args:
        device: The GPU.
        draw: Copies a batch there and draws it.
        slots: Where batches lie.
    """

    def __init__(self, device: torch.device, draw: Draw, slots: BatchSlots) -> None:
        self._draw = draw
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pages = PinnedSlots(slots, self._copies.synchronize)
        # Bytes hold their slot; they are held until they have been copied.
        self._in_flight: deque[tuple[torch.cuda.Event, ByteArray]] = deque()

    def run(self, content: ByteArray, slot: int, size: int) -> tuple[Tensors, torch.cuda.Event]:
        """Return a batch on the GPU, and what says when it is there."""
        # A thread begins with the first GPU, whatever the others chose.
        torch.cuda.set_device(self._copies.device)
        self._pages.pin(slot)
        with torch.cuda.stream(self._copies):
            batch = self._draw(content, slot, size)
            done = self._copies.record_event()
        self._in_flight.append((done, content))
        self._let_go()
        return batch, done

    def hand_over(self, batch: Tensors, done: torch.cuda.Event) -> Tensors:
        """Let the consumer's stream wait for a batch, and return it."""
        # "cuda" may mean another GPU in this thread than in the one that started the workers.
        consumer = torch.cuda.current_stream(self._copies.device)
        consumer.wait_event(done)
        for tensor in {t.untyped_storage().data_ptr(): t for t in batch.values()}.values():
            # Its memory must not be used for a later batch before the consumer's work is done.
            tensor.record_stream(consumer)
        return batch

    def _let_go(self) -> None:
        """Give back the slots that have been copied from. Blocks while too many have not."""
        while self._in_flight:
            done, _ = self._in_flight[0]
            if len(self._in_flight) > COPIES_IN_FLIGHT:
                done.synchronize()
            elif not done.query():  # type: ignore[no-untyped-call]
                return
            self._in_flight.popleft()


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
