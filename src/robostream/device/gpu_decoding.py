# SPDX-License-Identifier: Apache-2.0
"""What workers do on an NVIDIA GPU: memory for batches that processes share, and decoding (NVDEC).

Memory is shared through CUDA's driver: torch counts the users of memory that it shares, and
complains at exit about killed workers. PyAV decodes; frames are scaled and packed on the GPU.
Functions import torch when they need it: most processes that decode do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.codec.hwaccel import HWAccel

from robostream.assemble import ArrayLayout
from robostream.decode import (
    CodecConfig,
    DecodedFrame,
    FrameLayout,
    PackedFrame,
    Plane,
    PyavBackend,
    Renderer,
    Size,
    frame_layout,
    label_place,
    new_context,
)
from robostream.device.shared_memory import BatchFormat, format_batch
from robostream.errors import VideoFileError, WorkerError

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


def open_nvdec(device: str) -> PyavBackend:
    """Return a backend that decodes on a GPU, such as "cuda:0"."""
    # A decoder has memory for few frames, so each is copied out before the next is decoded.
    return PyavBackend(
        functools.partial(open_on_gpu, device=device), frame_on_device, frames_at_a_time=1
    )


def open_on_gpu(config: CodecConfig, device: str) -> av.VideoCodecContext:
    """Return a decoder that leaves its frames on a GPU; raises PyAV's errors."""
    # NVDEC needs FFmpeg's own decoder of a codec, which has the codec's name.
    name = av.Codec(config.decoder, "r").canonical_name
    accelerator = HWAccel(
        "cuda",
        device=device.removeprefix("cuda:"),
        allow_software_fallback=False,
        # A CUDA context made by FFmpeg would have other flags than torch's.
        options={"primary_ctx": "0", "current_ctx": "1"},
        is_hw_owned=True,
    )
    # FFmpeg takes the thread's current CUDA context: after this, torch's on this GPU.
    with on_decoder_stream(device):
        device_memory(1, device).zero_()
        return new_context(config, name, accelerator)


def frame_on_device(frame: av.VideoFrame, file: str) -> DecodedFrame:
    """Return a planar copy of a frame that the GPU decoded.

    The copy is queued behind the decoder's work: see `on_decoder_stream`.
    """
    import torch

    if len(frame.planes) != 2 or not frame.width % 2 == frame.height % 2 == 0:
        raise _other_format(frame, file)
    share: Any = torch.from_dlpack  # type: ignore[attr-defined]
    y, uv = (share(plane.__dlpack__()) for plane in frame.planes)
    if y.dtype != torch.uint8:
        raise _other_format(frame, file)
    height, width = y.shape
    layout = frame_layout("yuv420p", width, height, int(frame.colorspace), int(frame.color_range))
    content = torch.empty(layout.nbytes, dtype=torch.uint8, device=y.device)
    luma, end = width * height, width * height * 3 // 2
    content[:luma].view(height, width).copy_(y)
    content[luma:end].view(2, height // 2, width // 2).copy_(uv.permute(2, 0, 1))
    return _frame(layout, content)


class DeviceRenderer(Renderer):
    """Copies and scales frames within a GPU's memory.

    Scales with FFmpeg's filter, to within 2 levels in each plane.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self._weights: dict[tuple[int, int], Any] = {}

    def pack(self, frame: DecodedFrame, packed: PackedFrame) -> None:
        """Write a decoded frame into its slot."""
        self.pack_into(frame, packed.content)

    def pack_into(self, frame: DecodedFrame, out: Any) -> None:
        """Write the planes of a decoded frame to the start of an array."""
        out[: frame.layout.nbytes].copy_(frame.planes[0].memory)

    def write_label(self, out: Any, label: int) -> None:
        """Write the label of a packed frame."""
        # Assigning a number would wait for all queued work of the GPU.
        label_place(out).fill_(label)

    def scale(self, frame: DecodedFrame, size: Size, *, file: str) -> DecodedFrame:
        """Return a frame at a size of even height; itself if the size is its own."""
        old = frame.layout
        if size == (old.height, old.width):
            return frame
        import torch

        new = frame_layout(old.kind, size[1], size[0], old.colorspace, old.color_range)
        source = frame.planes[0].memory
        content = torch.empty(new.nbytes, dtype=torch.uint8, device=source.device)
        at = to = 0
        # In the consumer's own process, its autocast must not apply here.
        with torch.autocast(source.device.type, enabled=False):
            for (width, height), (columns, rows) in zip(
                old.plane_sizes, new.plane_sizes, strict=True
            ):
                plane = source[at : at + width * height].view(height, width).float()
                down = self._filter(height, rows, source.device)
                across = self._filter(width, columns, source.device)
                scaled = (down @ plane @ across.T).add_(0.5).clamp_(0, 255)
                content[to : to + columns * rows] = scaled.view(-1).byte()
                at, to = at + width * height, to + columns * rows
        return _frame(new, content)

    def _filter(self, old: int, new: int, device: Any) -> Any:
        import torch

        if (old, new) not in self._weights:
            self._weights[old, new] = torch.from_numpy(filter_weights(old, new)).to(device)
        return self._weights[old, new]


def filter_weights(old: int, new: int) -> npt.NDArray[np.float32]:
    """Return the weight of each of `old` values in each of `new` ones. Pure.

    A triangle around the new value's position, widened when shrinking, like FFmpeg's bilinear
    filter; beyond the edges, the last value repeats.
    """
    scale = old / new
    reach = max(scale, 1.0)
    centres = (np.arange(new) + 0.5) * scale - 0.5
    near = np.floor(centres)[:, None] + np.arange(-np.ceil(reach), np.ceil(reach) + 2)
    shares = np.maximum(0, 1 - np.abs(near - centres[:, None]) / reach)
    shares /= shares.sum(axis=1, keepdims=True)
    weights = np.zeros((new, old), np.float64)
    places = np.clip(near, 0, old - 1).astype(np.int64)
    np.add.at(weights, (np.arange(new)[:, None], places), shares)
    return weights.astype(np.float32)


def _frame(layout: FrameLayout, content: Any) -> DecodedFrame:
    plane = Plane(content, content.data_ptr(), 0)
    return DecodedFrame(layout, (plane,), device=str(content.device))


def _other_format(frame: av.VideoFrame, file: str) -> VideoFileError:
    return VideoFileError(
        f"{file}: the GPU decodes this video to {frame.width}x{frame.height} frames that are not "
        "8-bit 4:2:0 of even size; decode it on the CPU with video_decode_device='cpu'"
    )
