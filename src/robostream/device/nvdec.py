# SPDX-License-Identifier: Apache-2.0
"""Decoding on an NVIDIA GPU (NVDEC), through PyAV; frames are scaled, kept and packed there.

torch is imported with the first decoder: most processes that decode need none.
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
    FrameScaler,
    Plane,
    PyavBackend,
    Renderer,
    Size,
    SlotMemory,
    kept_layout,
    label_place,
    new_context,
)
from robostream.device.gpu_memory import beside_decoders, device_memory, import_torch
from robostream.errors import VideoFileError


def open_nvdec(device: str) -> PyavBackend:
    """Return what decodes on a GPU, such as "cuda:0"."""
    # A decoder has memory for few pictures, so each is taken out before the next is decoded.
    return PyavBackend(
        functools.partial(open_on_gpu, device=device), picture_on_device, frames_at_a_time=1
    )


def open_on_gpu(config: CodecConfig, device: str) -> av.VideoCodecContext:
    """Return a decoder on a GPU that leaves its pictures there; raises what PyAV does."""
    # NVDEC works with FFmpeg's own decoder of a codec, which has the codec's name.
    name = av.Codec(config.decoder, "r").canonical_name
    accelerator = HWAccel(
        "cuda",
        device=device.removeprefix("cuda:"),
        allow_software_fallback=False,
        # A context of FFmpeg's own would have other flags than torch's.
        options={"primary_ctx": "0", "current_ctx": "1"},
        is_hw_owned=True,
    )
    # FFmpeg takes the CUDA context that this thread used last: with this, torch's on this GPU.
    with beside_decoders(device):
        device_memory(1, device).zero_()
        return new_context(config, name, accelerator)


def picture_on_device(frame: av.VideoFrame, *, file: str) -> DecodedFrame:
    """Return a frame that the GPU decoded: planar, as it is kept; the frame may go.

    The copy is queued behind the decoder's work: see `beside_decoders`.
    """
    torch = import_torch()
    if len(frame.planes) != 2 or not frame.width % 2 == frame.height % 2 == 0:
        raise _other_format(frame, file)
    y, uv = (torch.from_dlpack(plane.__dlpack__()) for plane in frame.planes)
    if y.dtype != torch.uint8:
        raise _other_format(frame, file)
    height, width = y.shape
    layout = kept_layout("yuv420p", width, height, int(frame.colorspace), int(frame.color_range))
    content = torch.empty(layout.nbytes, dtype=torch.uint8, device=y.device)
    luma, end = width * height, width * height * 3 // 2
    content[:luma].view(height, width).copy_(y)
    content[luma:end].view(2, height // 2, width // 2).copy_(uv.permute(2, 0, 1))
    return _picture(layout, content)


class DeviceRenderer(Renderer):
    """Puts pictures on a GPU into memory there, by copies that the GPU makes."""

    def __init__(self) -> None:
        super().__init__(None)

    def pack(self, picture: DecodedFrame, slot: SlotMemory) -> None:
        """Write a decoded picture into the memory that keeps it."""
        self.pack_into(picture, slot.content)

    def pack_into(self, picture: DecodedFrame, out: Any) -> None:
        """Write the planes of a decoded picture, as they are kept, to the begin of an array."""
        out[: picture.layout.nbytes].copy_(picture.planes[0].memory)

    def write_label(self, out: Any, label: int) -> None:
        """Put the label on a parcel."""
        # To assign a number would wait until the GPU has done all it was told to do before.
        label_place(out).fill_(label)


class DeviceScaler(FrameScaler):
    """Scales pictures on a GPU with FFmpeg's filter, to within 2 levels in each plane."""

    def __init__(self) -> None:
        super().__init__(Renderer(None))
        self._weights: dict[tuple[int, int], Any] = {}

    def scale(self, picture: DecodedFrame, size: Size | None, *, file: str) -> DecodedFrame:
        """Return a picture at a size of even height; itself if it has it, or if it is None."""
        old = picture.layout
        if size is None or size == (old.height, old.width):
            return picture
        torch = import_torch()
        new = kept_layout(old.kind, size[1], size[0], old.colorspace, old.color_range)
        source = picture.planes[0].memory
        content = torch.empty(new.nbytes, dtype=torch.uint8, device=source.device)
        at = to = 0
        # The consumer's autocast, if pictures are decoded in its process, is not for these.
        with torch.autocast(source.device.type, enabled=False):
            for (width, height), (columns, rows) in zip(
                old.plane_sizes, new.plane_sizes, strict=True
            ):
                plane = source[at : at + width * height].view(height, width).float()
                down = self._of(height, rows, source.device)
                across = self._of(width, columns, source.device)
                scaled = (down @ plane @ across.T).add_(0.5).clamp_(0, 255)
                content[to : to + columns * rows] = scaled.view(-1).byte()
                at, to = at + width * height, to + columns * rows
        return _picture(new, content)

    def _of(self, old: int, new: int, device: Any) -> Any:
        if (old, new) not in self._weights:
            weights = import_torch().from_numpy(filter_weights(old, new))
            self._weights[old, new] = weights.to(device)
        return self._weights[old, new]


def filter_weights(old: int, new: int) -> npt.NDArray[np.float32]:
    """Return the share of each of `old` values in each of `new` ones. Pure.

    A triangle around the new value's place, widened when there are fewer of them, as FFmpeg's
    bilinear filter is; beyond the edges, the last value goes on.
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


def _picture(layout: FrameLayout, content: Any) -> DecodedFrame:
    plane = Plane(content, content.data_ptr(), 0)
    return DecodedFrame(layout, (plane,), device=str(content.device))


def _other_format(frame: av.VideoFrame, file: str) -> VideoFileError:
    return VideoFileError(
        f"{file}: the GPU decodes this video to {frame.width}x{frame.height} pictures that are not "
        "8-bit 4:2:0 of even size; decode it on the CPU with video_decode_device='cpu'"
    )
