# SPDX-License-Identifier: Apache-2.0
"""From arrays in a slot to the tensors of a batch, on this side or on a device.

With a device, 4:2:0 pictures travel as parcels and are drawn there, unless the device decoded them
and they lie there already. Of CUDA, the parts that need a
GPU (page-locked slots, a stream of copies beside the training step) are kept in one class.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import torch

from robostream import config
from robostream.assemble import Arrays, CameraLayout
from robostream.crew import DeviceBatches
from robostream.decode import Size
from robostream.errors import SelectionError
from robostream.loader.batch_slots import BatchSlots
from robostream.loader.draw_parcels import draw_parcels

logger = logging.getLogger(__name__)

Tensors = dict[str, torch.Tensor]
# What turns the arrays of a batch into the tensors a consumer gets; with its slot and its size.
Finish = Callable[[Arrays, int, int], Tensors]
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
    """Return what makes tensors of the arrays of a batch, and of what lies on the device."""
    if device is None:
        pins = pin_memory and torch.cuda.is_available()
        return _pinned_copies if pins else _as_they_are
    if device.type == "cuda":
        return CudaUpload(device, cameras, slots, on_device)

    def draw_here(arrays: Arrays, slot: int, size: int) -> Tensors:
        there = {} if on_device is None else on_device.view(slot, size)
        return draw_all(_as_they_are(arrays, slot, size) | there, cameras)

    return draw_here


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


class CudaUpload:
    """Copies batches to a GPU beside the work that is queued there, and draws parcels.

    A batch may be used on the stream that was current when it was asked for, as any tensor made
    there. Its slot is used again once it has been copied and drawn. Pictures that the GPU decoded
    lie there already.
    """

    def __init__(
        self,
        device: torch.device,
        cameras: Sequence[CameraLayout],
        slots: BatchSlots,
        on_device: DeviceBatches | None,
    ) -> None:
        self._device = device
        self._cameras = cameras
        self._on_device = on_device
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pages = _PinnedSlots(slots)
        # Arrays hold their slot; they are held until they have been copied.
        self._in_flight: deque[tuple[torch.cuda.Event, Arrays]] = deque()

    def __call__(self, arrays: Arrays, slot: int, size: int) -> Tensors:
        """Return a batch on the GPU; the copy may still be under way."""
        self._pages.pin(next(iter(arrays.values())))
        consumer = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copies):
            copied = {
                key: torch.from_numpy(array).to(self._device, non_blocking=True)
                for key, array in arrays.items()
            }
            if self._on_device is not None:
                copied |= self._on_device.view(slot, size)
            batch = draw_all(copied, self._cameras)
            self._in_flight.append((self._copies.record_event(), arrays))
        consumer.wait_stream(self._copies)
        for tensor in batch.values():
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


def _as_they_are(arrays: Arrays, slot: int, size: int) -> Tensors:
    return {key: torch.from_numpy(array) for key, array in arrays.items()}


def _pinned_copies(arrays: Arrays, slot: int, size: int) -> Tensors:
    return {key: torch.from_numpy(array).pin_memory() for key, array in arrays.items()}
