# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a slot to the tensors of a batch, on this side or on a device.

With a device, 4:2:0 pictures travel as parcels and are drawn there, unless the device decoded them
and they lie there already. Of CUDA, the parts that need a GPU (page-locked slots, a stream of
copies beside the training step) are kept in one class.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robostream import config
from robostream.assemble import CameraLayout
from robostream.crew import BatchFormat, ByteArray, DeviceBatches
from robostream.decode import Size
from robostream.errors import SelectionError
from robostream.loader.batch_slots import BatchSlots
from robostream.loader.draw_parcels import draw_parcels

logger = logging.getLogger(__name__)

Tensors = dict[str, torch.Tensor]
# What turns the bytes of a slot into the tensors a consumer gets; with its number and the batch's
# size.
Finish = Callable[[ByteArray, int, int], Tensors]
# Batches that are being copied at a time. Fewer than a consumer may hold, so that none is a copy.
_COPIES_IN_FLIGHT = config.HELD_BATCHES - 1


def choose_device(device: str | torch.device | None) -> torch.device | None:
    """Return the device batches are delivered on, or raise SelectionError; None for as built."""
    if device is None:
        return None
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SelectionError(f"device must be 'cuda', 'cuda:0' or 'cpu', got {device!r}") from error
    if chosen.type not in ("cuda", "cpu"):
        raise SelectionError(f"device must be 'cuda', 'cuda:0' or 'cpu', got {device!r}")
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (chosen.index or 0) >= count:
            raise SelectionError(
                f"device={device!r}: torch {torch.__version__} sees {count} CUDA devices. Install "
                "a torch built for CUDA, check the driver with nvidia-smi, or leave `device` out."
            )
    return chosen


def choose_finish(
    device: torch.device | None,
    cameras: Sequence[CameraLayout],
    slots: BatchSlots,
    on_device: DeviceBatches | None,
    *,
    pin_memory: bool,
) -> Finish:
    """Return what makes tensors of the bytes of a slot, and of what lies on the device."""
    batches = slots.format

    def as_they_are(content: ByteArray, slot: int, size: int) -> Tensors:
        arrays = batches.view_slot(content, size)
        return {key: torch.from_numpy(array) for key, array in arrays.items()}

    def as_pinned_copies(content: ByteArray, slot: int, size: int) -> Tensors:
        tensors = as_they_are(content, slot, size)
        return {key: tensor.pin_memory() for key, tensor in tensors.items()}

    if device is None:
        return as_pinned_copies if pin_memory and torch.cuda.is_available() else as_they_are
    move = _Move(device, batches)

    def draw_here(content: ByteArray, slot: int, size: int) -> Tensors:
        there = {} if on_device is None else on_device.view(slot, size)
        return draw_all(move(content, size) | there, cameras)

    if device.type == "cpu":
        return draw_here
    return CudaUpload(device, draw_here, slots)


def draw_all(tensors: Tensors, cameras: Sequence[CameraLayout]) -> Tensors:
    """Return a batch with the parcels in it drawn, on the device they lie on.

    Cameras whose pictures are of one size and type are drawn together.
    """
    drawn: Tensors = {}
    alike: dict[tuple[Size, torch.dtype], list[str]] = {}
    for camera in cameras:
        if camera.parcel_size is not None:
            dtype = torch.uint8 if camera.is_uint8 else torch.float32
            alike.setdefault((camera.parcel_size, dtype), []).append(camera.key)
    for (size, dtype), keys in alike.items():
        parcels = [tensors[key].flatten(0, -2) for key in keys]
        together = torch.cat(parcels) if len(parcels) > 1 else parcels[0]
        pictures = torch.split(draw_parcels(together, size, dtype), list(map(len, parcels)))
        for key, own in zip(keys, pictures, strict=True):
            drawn[key] = own.view(*tensors[key].shape[:-1], 3, *size)
    return tensors | drawn


class _Move:
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

    def __call__(self, content: ByteArray, size: int) -> Tensors:
        """Return the arrays of a batch of `size` samples there."""
        small = self._copy(content[: self._batches.small_bytes])
        typed = {dtype: small.view(dtype) for dtype in {place[1] for place in self._small}}
        tensors = {
            key: typed[dtype].as_strided((size, *shape), strides, begin)
            for key, dtype, begin, shape, strides in self._small
        }
        for key, array in self._batches.view_slot(content, size).items():
            if key not in tensors:
                tensors[key] = self._copy(array)
        return tensors

    def _copy(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True, copy=True)


class CudaUpload:
    """Copies batches to a GPU beside the work that is queued there, and draws parcels.

    A batch may be used on the stream that was current when it was asked for, as any tensor made
    there. Its slot is used again once it has been copied and drawn.

    Args:
        device: The GPU.
        move: Copies a batch there and draws it.
        slots: Where batches lie.
    """

    def __init__(self, device: torch.device, move: Finish, slots: BatchSlots) -> None:
        self._device = device
        self._move = move
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pages = _PinnedSlots(slots)
        # Bytes hold their slot; they are held until they have been copied.
        self._in_flight: deque[tuple[torch.cuda.Event, ByteArray]] = deque()

    def __call__(self, content: ByteArray, slot: int, size: int) -> Tensors:
        """Return a batch on the GPU; the copy may still be under way."""
        self._pages.pin(content)
        consumer = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copies):
            batch = self._move(content, slot, size)
            self._in_flight.append((self._copies.record_event(), content))
        consumer.wait_stream(self._copies)
        for tensor in _one_for_each_memory(batch):
            # Its memory must not be used for a later batch before the consumer's work is done.
            tensor.record_stream(consumer)
        self._let_go()
        return batch

    def _let_go(self) -> None:
        """Give back the slots that have been copied from. Blocks while too many have not."""
        while self._in_flight:
            done, _ = self._in_flight[0]
            if len(self._in_flight) > _COPIES_IN_FLIGHT:
                done.synchronize()
            elif not done.query():  # type: ignore[no-untyped-call]
                return
            self._in_flight.popleft()


def _one_for_each_memory(tensors: Tensors) -> list[torch.Tensor]:
    """Return a tensor for each piece of memory that some tensors lie in."""
    return list({t.untyped_storage().data_ptr(): t for t in tensors.values()}.values())


class _PinnedSlots:
    """Page-locks slots when they are first copied from: only then does a copy run by itself."""

    def __init__(self, slots: BatchSlots) -> None:
        self._begin = slots.memory.ctypes.data
        self._slot_bytes = slots.format.slot_bytes
        self._num_slots = slots.memory.nbytes // self._slot_bytes
        self._tried: set[int] = set()
        self._addresses: list[int] = []
        weakref.finalize(self, _unpin, self._addresses, slots.memory)

    def pin(self, array: npt.NDArray[Any]) -> None:
        """Page-lock the slot an array lies in, unless it is done, or the array a copy elsewhere."""
        slot = (array.ctypes.data - self._begin) // self._slot_bytes
        if slot in self._tried or not 0 <= slot < self._num_slots:
            return
        self._tried.add(slot)
        address = self._begin + slot * self._slot_bytes
        error = int(_cudart().cudaHostRegister(address, self._slot_bytes, 0))
        if error:
            logger.warning("CUDA error %d: a slot is not page-locked; copies are slower", error)
        else:
            self._addresses.append(address)


def _unpin(addresses: list[int], memory: npt.NDArray[Any]) -> None:
    """Let go of pages; `memory` is held so that they are still there."""
    del memory
    for address in addresses:
        _cudart().cudaHostUnregister(address)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
