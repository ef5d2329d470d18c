# SPDX-License-Identifier: Apache-2.0
"""Decoding on an NVIDIA GPU (NVDEC), through PyAV; frames are scaled and packed there.

The first decoder imports torch: most processes that decode do not need it.
"""

from __future__ import annotations

import functools
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.codec.hwaccel import HWAccel

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
from robostream.device.gpu_memory import device_memory, on_decoder_stream
from robostream.errors import VideoFileError


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
