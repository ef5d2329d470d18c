# SPDX-License-Identifier: Apache-2.0
"""GPU memory that the consumer and its workers share, for the frames of batches.

It is shared through CUDA's driver: torch counts the users of memory that it shares, and complains
at exit about killed workers. Functions import torch when they need it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from robostream.assemble import ArrayLayout
from robostream.device.shared_memory import BatchFormat, format_batch
from robostream.errors import WorkerError

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


def device_memory(nbytes: int, device: str) -> Any:
    """Return memory of a device, such as "cuda:0", as a tensor of bytes."""
    import torch

    # Callers outside of inference mode write to it too.
    with torch.inference_mode(False), on_decoder_stream(device):
        return torch.empty(nbytes, dtype=torch.uint8, device=device)


def on_decoder_stream(device: Any) -> AbstractContextManager[object]:
    """Return a context in which a device's work runs on the stream of its decoders.

    That is its default stream, whatever stream is current.
    """
    import torch

    if torch.device(device).type != "cuda":
        return contextlib.nullcontext()
    stream: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.default_stream(device))
    return stream


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * _HANDLE_BYTES)]


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """How workers open the GPU memory for the frames of batches.

    Attributes:
        device: The GPU, such as "cuda:0".
        batches: How frames lie in slots, which have the numbers of the slots in RAM.
        handle: The CUDA IPC handle of the allocation.
        offset: The start of the memory in that allocation.
        nbytes: Its length.
    """

    device: str
    batches: BatchFormat
    handle: bytes
    offset: int
    nbytes: int


class DeviceBatches:
    """The frames of batches in a GPU's memory, a tensor of bytes for all slots."""

    def __init__(self, batches: BatchFormat, memory: Any) -> None:
        self._format = batches
        self._memory = memory

    @property
    def keys(self) -> Collection[str]:
        """The cameras whose frames lie there."""
        return self._format.arrays

    def view(self, slot: int, size: int) -> dict[str, Any]:
        """Return the tensors of a batch of `size` samples in a slot."""
        return self._format.view(self._memory, slot, size)

    def share(self) -> DeviceConfig:
        """Return how other processes open the memory."""
        address = self._memory.data_ptr()
        base, length, handle = ctypes.c_uint64(), ctypes.c_size_t(), _Handle()
        found = ctypes.byref(base), ctypes.byref(length)
        with self.on_decoder_stream():
            _call("cuMemGetAddressRange_v2", *found, ctypes.c_uint64(address))
            _call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        return DeviceConfig(
            str(self._memory.device),
            self._format,
            bytes(handle),
            address - base.value,
            self._memory.nbytes,
        )

    def on_decoder_stream(self) -> AbstractContextManager[object]:
        """Return a context in which this process writes frames there."""
        return on_decoder_stream(self._memory.device)

    def settle(self) -> None:
        """Wait until other processes can read everything that this process has written."""
        import torch

        if self._memory.is_cuda:
            torch.cuda.default_stream(self._memory.device).synchronize()


def open_device_batches(
    arrays: Mapping[str, ArrayLayout], batch_size: int, num_slots: int, device: str
) -> DeviceBatches:
    """Return new memory for the frames of batches, all of them bytes."""
    batches = format_batch(arrays, batch_size)
    return DeviceBatches(batches, device_memory(num_slots * batches.slot_bytes, device))


def open_shared(config: DeviceConfig) -> DeviceBatches:
    """Return the memory that another process shares."""
    import torch

    torch.zeros(1, device=config.device)  # creates the CUDA context
    base = ctypes.c_uint64()
    handle = _Handle.from_buffer_copy(config.handle)
    _call("cuIpcOpenMemHandle_v2", ctypes.byref(base), handle, ctypes.c_uint(_LAZY_PEER_ACCESS))
    memory = torch.as_tensor(
        _DeviceBytes(base.value + config.offset, config.nbytes), device=config.device
    )
    return DeviceBatches(config.batches, memory)


class _DeviceBytes:
    """Bytes at an address, in the form that torch makes tensors from."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _call(name: str, *args: Any) -> None:
    error = getattr(_driver(), name)(*args)
    if error:
        raise WorkerError(
            f"GPU memory cannot be shared with worker processes ({name}: CUDA error "
            f"{error}). Leave expandable_segments out of PYTORCH_CUDA_ALLOC_CONF, or decode in "
            "this process with num_workers=0."
        )


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
