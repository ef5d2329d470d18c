# SPDX-License-Identifier: Apache-2.0
"""Pictures in the memory of a GPU: taken from its decoder, scaled, kept and put into parcels.

torch is imported when the first of them is made: most processes that decode need none.
"""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from robostream.decode.picture.buffer_pool import SlotMemory
from robostream.decode.picture.decoded import DecodedFrame, Plane
from robostream.decode.picture.layout import FrameLayout, kept_layout
from robostream.decode.picture.parcel import label_place
from robostream.decode.picture.render import Renderer
from robostream.decode.picture.scale import FrameScaler, Size
from robostream.errors import VideoFileError


def device_memory(nbytes: int, device: str) -> Any:
    """Return memory of a device, such as "cuda:0": a tensor of bytes."""
    torch = _torch()
    # Whatever mode the caller is in, it is written to in others.
    with torch.inference_mode(False), beside_decoders(device):
        return torch.empty(nbytes, dtype=torch.uint8, device=device)


def beside_decoders(device: Any) -> AbstractContextManager[object]:
    """Return a block in which work on a device waits for that of its decoders, and they for it.

    They use its default stream, whatever stream is current.
    """
    torch = _torch()
    if torch.device(device).type != "cuda":
        return contextlib.nullcontext()
    stream: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.default_stream(device))
    return stream


def picture_on_device(frame: av.VideoFrame, *, file: str) -> DecodedFrame:
    """Return a frame that the GPU decoded: planar, as it is kept; the frame may go.

    The copy is queued behind the decoder's work: see `beside_decoders`.
    """
    torch = _torch()
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
        torch = _torch()
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
            weights = _torch().from_numpy(filter_weights(old, new))
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


@functools.cache
def _torch() -> Any:
    import torch

    return torch
