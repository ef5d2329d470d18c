# SPDX-License-Identifier: Apache-2.0
"""From packed YUV 4:2:0 to RGB with torch, on the device that holds the batch.

The arithmetic is that of FFmpeg's vector code, so the images equal those of workers on x86-64 bit
for bit. FFmpeg's plain C code, which other processors may use, rounds differently: by half a level
on average, by 3 at most.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from robostream.assemble import CameraLayout
from robostream.decode import NUM_LABELS, Size, drawing_of, open_yuv

Tensors = dict[str, torch.Tensor]
_WHITE = 255
# Pixels that are converted at a time; each takes about 25 bytes on the way.
_PIXELS_AT_A_TIME = 1 << 24


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
        # A true division: on a GPU, torch multiplies by 1/255 for a number, which differs in the
        # last bit.
        images = images.float().div_(_white(packed.device))
    return images


def _draw(packed: torch.Tensor, size: Size) -> torch.Tensor:
    (height, width), count = size, len(packed)
    labels, y, chroma = open_yuv(packed, size)
    numbers = _coefficients(packed.device)[labels.int()]
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
def _white(device: torch.device) -> torch.Tensor:
    # Copied, not filled: a copy is complete for every stream when this returns.
    return torch.tensor([_WHITE], dtype=torch.float32, device=device)


@functools.lru_cache(maxsize=16)
def _coefficients(device: torch.device) -> torch.Tensor:
    """Return by label: factor and offset of y, then six factors and six offsets.

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
    return torch.tensor(rows, dtype=torch.int32, device=device)
