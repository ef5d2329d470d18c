# SPDX-License-Identifier: Apache-2.0
"""4:2:0 pictures of a batch into RGB with torch, on whatever device they lie.

The arithmetic is that of FFmpeg's vector code, number for number, so the pictures are bit for bit
those that workers would have drawn on x86-64. FFmpeg's plain C code, which other processors may
use, rounds otherwise: by half a level on the average, and 3 at most.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from robostream.assemble import CameraLayout
from robostream.decode import NUM_LABELS, Size, drawing_of, open_yuv

Tensors = dict[str, torch.Tensor]
_WHITE = 255
# Pixels that are drawn in one go; the numbers on the way take about 25 bytes for each.
_PIXELS_AT_A_TIME = 1 << 24


def draw_all(tensors: Tensors, cameras: Sequence[CameraLayout]) -> Tensors:
    """Return a batch with the parcels in it drawn, on the device they lie on.

    Cameras whose pictures are of one size and type are drawn together.
    """
    drawn: Tensors = {}
    alike: dict[tuple[Size, torch.dtype], list[str]] = {}
    for camera in cameras:
        if camera.yuv_size is not None:
            dtype = torch.uint8 if camera.is_uint8 else torch.float32
            alike.setdefault((camera.yuv_size, dtype), []).append(camera.key)
    for (size, dtype), keys in alike.items():
        parcels = [tensors[key].flatten(0, -2) for key in keys]
        together = torch.cat(parcels) if len(parcels) > 1 else parcels[0]
        pictures = torch.split(draw_parcels(together, size, dtype), list(map(len, parcels)))
        for key, own in zip(keys, pictures, strict=True):
            # With `data`, a change of one camera in place is no change of the others to autograd.
            drawn[key] = own.view(*tensors[key].shape[:-1], 3, *size).data
    return tensors | drawn


def draw_parcels(parcels: torch.Tensor, size: Size, dtype: torch.dtype) -> torch.Tensor:
    """Return parcels (count, bytes) as RGB (count, 3, height, width), uint8 or float32 in [0, 1].

    In few steps, each for many pictures: to begin a step takes longer than a GPU does to end it.
    """
    height, width = size
    several = torch.split(parcels, max(1, _PIXELS_AT_A_TIME // (height * width)))
    if len(several) == 1:
        pictures = _draw(parcels, size)
    else:
        pictures = torch.empty((len(parcels), 3, *size), dtype=torch.uint8, device=parcels.device)
        for out, some in zip(torch.split(pictures, len(several[0])), several, strict=True):
            out.copy_(_draw(some, size))
    if dtype == torch.float32:
        # A true division: multiplying by 1/255, as torch does with a number on a GPU, differs in
        # the last bit.
        pictures = pictures.float().div_(_white(parcels.device))
    return pictures


def _draw(parcels: torch.Tensor, size: Size) -> torch.Tensor:
    (height, width), count = size, len(parcels)
    labels, y, chroma = open_yuv(parcels, size)
    numbers = _numbers(parcels.device)[labels.int()]
    y_factor, y_offset = numbers[:, :2, None, None].unbind(1)
    factors, offsets = numbers[:, 2:, None, None].view(count, 2, 3, 2, 1, 1).unbind(1)
    light = (y * y_factor).sub_(y_offset).bitwise_right_shift_(16)
    # For each of red, green and blue, what is in u and what is in v; each is rounded by itself.
    parts = (chroma[:, None] * factors).sub_(offsets).bitwise_right_shift_(16)
    colours = parts.sum(2, dtype=torch.int32)
    # A colour is shared by four pixels, fewer at the edge of a picture of odd size.
    rows, columns = colours.shape[-2:]
    is_odd = (height, width) != (2 * rows, 2 * columns)
    if is_odd:
        light = torch.nn.functional.pad(light, (0, 2 * columns - width, 0, 2 * rows - height))
    drawn: torch.Tensor = (
        light.view(count, 1, rows, 2, columns, 2) + colours[:, :, :, None, :, None]
    )
    drawn = drawn.clamp_(0, _WHITE).to(torch.uint8).view(count, 3, 2 * rows, 2 * columns)
    return drawn[..., :height, :width].contiguous() if is_odd else drawn


@functools.lru_cache(maxsize=16)
def _white(device: torch.device) -> torch.Tensor:
    # Copied, not filled: a copy is there when this returns, for every stream.
    return torch.tensor([_WHITE], dtype=torch.float32, device=device)


@functools.lru_cache(maxsize=16)
def _numbers(device: torch.device) -> torch.Tensor:
    """Return, by label: factor and offset of y, then six factors and six offsets.

    FFmpeg multiplies (8 * value - black) with a coefficient and takes the upper 16 of 32 bits.
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
