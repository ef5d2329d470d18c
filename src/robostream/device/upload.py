# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a slot to the tensors of a batch, in this process's memory or on a device.

With a device, a thread uploads one batch ahead. Frames travel as packed YUV 4:2:0 and become RGB on
the device, unless the device itself decoded them. Only `CudaUpload` and `PinnedSlots` need a GPU.

Images equal those of workers on x86-64 bit for bit: the arithmetic is that of FFmpeg's vector code.
FFmpeg's plain C code rounds differently: by half a level on average, by 3 at most.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
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
from robostream.decode import NUM_LABELS, Size, drawing_of, open_yuv
from robostream.device.gpu_decoding import DeviceBatches
from robostream.device.shared_memory import BatchFormat, BatchSlots, ByteArray

logger = logging.getLogger(__name__)

Tensors = dict[str, torch.Tensor]
# Takes the bytes of a slot, its number and the batch's size; returns the tensors of the batch.
Draw = Callable[[ByteArray, int, int], Tensors]
_Task = tuple["Future[tuple[Tensors, Any]]", ByteArray, int, int]
_Tasks = queue.SimpleQueue[_Task | None]
# Slots from which copies run at a time.
COPIES_IN_FLIGHT = 2
# At exit, a program waits at most this long for the upload it has begun.
_LAST_UPLOAD_S = 10
_WHITE = 255
# Pixels that are converted at a time; each takes about 25 bytes on the way.
_PIXELS_AT_A_TIME = 1 << 24


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
        self._has_thread = _start_thread(upload, self._tasks)

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


# Upload threads, also of loaders that are gone, and the queue of each; None ends it. A thread stays
# listed until it has ended: the last thing it does is to unpin pages.
_THREADS: dict[threading.Thread, _Tasks] = {}
# Set at exit. A loader that is used even then uploads in the caller's thread.
_IS_EXITING = threading.Event()


def _start_thread(upload: CpuUpload, tasks: _Tasks) -> bool:
    """Start and list an upload thread; return whether Python let it start."""
    for other in list(_THREADS):
        if other.ident is not None and not other.is_alive():
            _THREADS.pop(other, None)
    # A daemon thread neither keeps the program alive nor ends before the last loop does.
    thread = threading.Thread(
        target=_run_tasks, args=(upload, tasks), name="robostream-upload", daemon=True
    )
    _THREADS[thread] = tasks
    try:
        thread.start()
    except RuntimeError:
        # Python 3.12 starts no thread once the main thread has ended.
        _THREADS.pop(thread, None)
        return False
    return True


def _run_tasks(upload: CpuUpload, tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        _run_task(upload, task)
        del task  # not held while waiting for the next one


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


def draw_batch(tensors: Tensors, cameras: Sequence[CameraLayout]) -> Tensors:
    """Return a batch with its packed frames converted to RGB.

    Cameras with frames of one size and type are converted together.
    """
    drawn: Tensors = {}
    alike: dict[tuple[Size, torch.dtype], list[str]] = {}
    for camera in cameras:
        if camera.yuv_size is not None:
            dtype = torch.uint8 if camera.is_uint8 else torch.float32
            alike.setdefault((camera.yuv_size, dtype), []).append(camera.key)
    for (size, dtype), keys in alike.items():
        packed = [tensors[key].flatten(0, -2) for key in keys]
        together = torch.cat(packed) if len(packed) > 1 else packed[0]
        images = torch.split(draw_yuv(together, size, dtype), list(map(len, packed)))
        for key, own in zip(keys, images, strict=True):
            # `data` hides from autograd that cameras share memory, so each may change in place.
            drawn[key] = own.view(*tensors[key].shape[:-1], 3, *size).data
    return tensors | drawn


def draw_yuv(packed: torch.Tensor, size: Size, dtype: torch.dtype) -> torch.Tensor:
    """Return packed frames (count, bytes) as RGB (count, 3, height, width).

    The result is uint8, or float32 in [0, 1]. Few kernels convert many frames each: launching a
    kernel takes longer than running it.
    """
    height, width = size
    several = torch.split(packed, max(1, _PIXELS_AT_A_TIME // (height * width)))
    if len(several) == 1:
        images = _draw(packed, size)
    else:
        images = torch.empty((len(packed), 3, *size), dtype=torch.uint8, device=packed.device)
        for out, some in zip(torch.split(images, len(several[0])), several, strict=True):
            out.copy_(_draw(some, size))
    if dtype == torch.float32:
        # A true division: for a number, torch multiplies by 1/255 on a GPU, which is not the same.
        _, white = _constants(packed.device)
        images = images.float().div_(white)
    return images


def _draw(packed: torch.Tensor, size: Size) -> torch.Tensor:
    (height, width), count = size, len(packed)
    labels, y, chroma = open_yuv(packed, size)
    numbers = _constants(packed.device)[0][labels.int()]
    y_factor, y_offset = numbers[:, :2, None, None].unbind(1)
    factors, offsets = numbers[:, 2:, None, None].view(count, 2, 3, 2, 1, 1).unbind(1)
    luma = (y * y_factor).sub_(y_offset).bitwise_right_shift_(16)
    # For each of red, green and blue, the parts of u and v, each rounded on its own.
    parts = (chroma[:, None] * factors).sub_(offsets).bitwise_right_shift_(16)
    colours = parts.sum(2, dtype=torch.int32)
    # Four pixels share a colour, fewer at the edge of a frame of odd size.
    rows, columns = colours.shape[-2:]
    is_odd = (height, width) != (2 * rows, 2 * columns)
    if is_odd:
        luma = torch.nn.functional.pad(luma, (0, 2 * columns - width, 0, 2 * rows - height))
    drawn: torch.Tensor = luma.view(count, 1, rows, 2, columns, 2) + colours[:, :, :, None, :, None]
    drawn = drawn.clamp_(0, _WHITE).to(torch.uint8).view(count, 3, 2 * rows, 2 * columns)
    return drawn[..., :height, :width].contiguous() if is_odd else drawn


@functools.lru_cache(maxsize=16)
def _constants(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return by label factor and offset of y, then six factors and six offsets; and white.

    FFmpeg multiplies (8 * value - black) by a coefficient and takes the upper 16 of 32 bits.
    """
    rows = []
    for drawing in map(drawing_of, range(NUM_LABELS)):
        factors = (0, drawing.v_red, drawing.u_green, drawing.v_green, drawing.u_blue, 0)
        rows.append(
            [8 * drawing.y, drawing.black * drawing.y]
            + [8 * factor for factor in factors]
            + [8 * 128 * factor for factor in factors]
        )
    # Copied, not filled: a copy is complete for every stream when this returns.
    white = torch.tensor([_WHITE], dtype=torch.float32, device=device)
    return torch.tensor(rows, dtype=torch.int32, device=device), white
