# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a slot to the tensors of a batch, in this process's memory or on a device.

With a device, a thread uploads one batch ahead. Frames travel as packed YUV 4:2:0 and become RGB on
the device, unless the device itself decoded them. Only `CudaUpload` and `PinnedSlots` need a GPU.
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
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robostream.assemble import CameraLayout
from robostream.device.draw import Tensors, draw_batch
from robostream.device.gpu_memory import DeviceBatches
from robostream.device.shared_memory import BatchFormat, BatchSlots, ByteArray

logger = logging.getLogger(__name__)

# Takes the bytes of a slot, its number and the batch's size; returns the tensors of the batch.
Draw = Callable[[ByteArray, int, int], Tensors]
# Slots from which copies run at a time.
COPIES_IN_FLIGHT = 2
# At exit, a program waits at most this long for the upload it has begun.
_LAST_UPLOAD_S = 10


def choose_transfer(
    device: torch.device | None,
    cameras: Sequence[CameraLayout],
    slots: BatchSlots,
    on_device: DeviceBatches | None,
    *,
    pin_memory: bool,
) -> HostTransfer | UploadThread:
    """Return what turns slots, and frames on the device, into tensors."""
    if device is None:
        return HostTransfer(slots, pin_memory=pin_memory and torch.cuda.is_available())
    copy = _DeviceCopy(device, slots.format)

    def draw(content: ByteArray, slot: int, size: int) -> Tensors:
        frames = {} if on_device is None else on_device.view(slot, size)
        return draw_batch(copy(content, size) | frames, cameras)

    upload = CudaUpload(device, draw, slots) if device.type == "cuda" else CpuUpload(draw)
    return UploadThread(upload, slots)


class HostTransfer:
    """Delivers batches in their slots, or copies of them in page-locked memory."""

    begins_early = False  # a batch begins when the consumer asks for it

    def __init__(self, slots: BatchSlots, *, pin_memory: bool) -> None:
        self._slots = slots
        self._pin_memory = pin_memory

    def begin(self, slot: int, size: int) -> Callable[[], Tensors]:
        """Return a function that returns the batch."""
        arrays = self._slots.deliver(slot, size)
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        if self._pin_memory:
            tensors = {key: tensor.pin_memory() for key, tensor in tensors.items()}
        return lambda: tensors


class UploadThread:
    """Uploads batches in a thread, while the consumer works with the batch before.

    A thread of its own pays off because launch overhead rivals execution time. Where Python starts
    no thread, batches are uploaded in the caller's thread.
    """

    begins_early = True

    def __init__(self, upload: CpuUpload, slots: BatchSlots) -> None:
        self._upload = upload
        self._slots = slots
        self._tasks: _Tasks = queue.SimpleQueue()
        # A daemon thread neither keeps the program alive nor ends before the last loop does.
        thread = threading.Thread(
            target=_run_tasks, args=(upload, self._tasks), name="robostream-upload", daemon=True
        )
        _register(thread, self._tasks)
        self._has_thread = True
        try:
            thread.start()
        except RuntimeError:
            # Python 3.12 starts no thread once the main thread has ended.
            self._has_thread = False
            _THREADS.pop(thread, None)

    def __del__(self) -> None:
        self._tasks.put(None)

    def begin(self, slot: int, size: int) -> Callable[[], Tensors]:
        """Begin an upload; return a function that waits for it and returns the batch."""
        upload, uploaded = self._upload, Future[tuple[Tensors, Any]]()
        task = uploaded, self._slots.lend(slot), slot, size
        if _IS_EXITING.is_set() or not self._has_thread:
            _run_task(upload, task)
        else:
            self._tasks.put(task)
        return lambda: upload.hand_over(*uploaded.result())


_Task = tuple["Future[tuple[Tensors, Any]]", ByteArray, int, int]
_Tasks = queue.SimpleQueue[_Task | None]
# Upload threads, also of loaders that are gone, and the queue of each; None ends it. A thread stays
# listed until it has ended: the last thing it does is to unpin pages.
_THREADS: dict[threading.Thread, _Tasks] = {}
# Set at exit. A loader that is used even then uploads in the caller's thread.
_IS_EXITING = threading.Event()


def _register(thread: threading.Thread, tasks: _Tasks) -> None:
    """List a thread that is about to start; drop those that have ended."""
    for other in list(_THREADS):
        if other.ident is not None and not other.is_alive():
            _THREADS.pop(other, None)
    _THREADS[thread] = tasks


def _run_tasks(upload: CpuUpload, tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        _run_task(upload, task)
        # Do not hold this task while waiting for the next one.
        del task


def _run_task(upload: CpuUpload, task: _Task) -> None:
    uploaded, content, slot, size = task
    try:
        uploaded.set_result(upload.run(content, slot, size))
    except BaseException as error:  # the consumer gets it, whatever it is
        uploaded.set_exception(error)


def _end_all() -> None:
    """End all threads: one that returns from torch during shutdown would abort the program."""
    _IS_EXITING.set()
    threads, until = _THREADS.copy(), time.monotonic() + _LAST_UPLOAD_S
    for tasks in threads.values():
        tasks.put(None)
    for thread in threads:
        if thread.ident is not None:  # else it ends when it starts
            thread.join(max(0.0, until - time.monotonic()))


# Exit handlers run in reverse order: first the program's own, then this one, then finalizers, which
# free the memory that copies read from. The first finalizer registers all of them.
weakref.finalize(_end_all, int)
atexit.register(_end_all)


class _DeviceCopy:
    """Copies the arrays of a batch to a device; all small ones at once, as each copy costs time."""

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
        """Return the arrays of a batch of `size` samples on the device."""
        small = self._copy(content[: self._batches.small_bytes])
        typed = {dtype: small.view(dtype) for dtype in self._dtypes}
        tensors = {
            # `data` hides from autograd that arrays share memory, so each may change in place.
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
    """Copies and converts batches in memory, by calling `draw`; for tests without a GPU."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def run(self, content: ByteArray, slot: int, size: int) -> tuple[Tensors, Any]:
        """Return a batch on the device and its event; called in the upload thread."""
        return self._draw(content, slot, size), None

    def hand_over(self, batch: Tensors, done: Any) -> Tensors:
        """Return the batch; called in the consumer's thread."""
        return batch


class CudaUpload(CpuUpload):
    """Copies batches to a GPU on a stream of its own, and converts them there.

    A batch may be used on the stream that was current in the consumer's call, like any tensor made
    there. Its slot is reused once it has been copied and converted.
    """

    def __init__(self, device: torch.device, draw: Draw, slots: BatchSlots) -> None:
        super().__init__(draw)
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pages = PinnedSlots(slots, self._copies.synchronize)
        # The bytes of slots, held until they have been copied.
        self._in_flight: deque[tuple[torch.cuda.Event, ByteArray]] = deque()

    def run(self, content: ByteArray, slot: int, size: int) -> tuple[Tensors, torch.cuda.Event]:
        """Return a batch on the GPU, and the event after which it is complete."""
        # A new thread starts on the first GPU, whatever other threads chose.
        torch.cuda.set_device(self._copies.device)
        self._pages.pin(slot)
        with torch.cuda.stream(self._copies):
            batch = self._draw(content, slot, size)
            done = self._copies.record_event()
        self._in_flight.append((done, content))
        self._release()
        return batch, done

    def hand_over(self, batch: Tensors, done: torch.cuda.Event) -> Tensors:
        """Make the consumer's stream wait for a batch, and return it."""
        # "cuda" may be another GPU in this thread than in the one that started the workers.
        consumer = torch.cuda.current_stream(self._copies.device)
        consumer.wait_event(done)
        for tensor in {t.untyped_storage().data_ptr(): t for t in batch.values()}.values():
            # A later batch must not reuse its memory before the consumer's work is done.
            tensor.record_stream(consumer)
        return batch

    def _release(self) -> None:
        """Release the slots that have been copied. Blocks while too many have not."""
        while self._in_flight:
            done, _ = self._in_flight[0]
            if len(self._in_flight) > COPIES_IN_FLIGHT:
                done.synchronize()
            elif not done.query():  # type: ignore[no-untyped-call]
                return
            self._in_flight.popleft()


class PinnedSlots:
    """Page-locks slots before their first copy: only from such memory do copies run asynchronously.

    `settle` waits until no copy reads from them.
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
            _clear_error()
        else:
            self._addresses.append(address)


def _unpin(
    process: int, addresses: list[int], memory: ByteArray, settle: Callable[[], object]
) -> None:
    """Unpin pages; the argument `memory` keeps them mapped until now."""
    del memory
    if not addresses or process != os.getpid():
        return  # a fork has not locked them, and cannot use CUDA
    with contextlib.suppress(RuntimeError):  # after a CUDA error nothing is copied
        settle()
    for address in addresses:
        _cudart().cudaHostUnregister(address)


def _clear_error() -> None:
    """Clear CUDA's last error: torch would blame its next kernel for it."""
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda")


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
