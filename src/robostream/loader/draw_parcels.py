# SPDX-License-Identifier: Apache-2.0
"""4:2:0 pictures of a batch into RGB with torch, on whatever device they lie.

The arithmetic is that of FFmpeg's vector code, number for number, so the pictures are bit for bit
those that workers would have drawn on x86-64. FFmpeg's plain C code, which other processors may
use, rounds otherwise: by half a level on the average, and 3 at most.
"""

from __future__ import annotations

import functools

import torch

from robostream.decode import NUM_LABELS, Size, drawing_of, open_parcels

_WHITE = 255


def draw_parcels(parcels: torch.Tensor, size: Size, dtype: torch.dtype) -> torch.Tensor:
    """Return parcels (..., bytes) as RGB (..., 3, height, width), uint8 or float32 in [0, 1]."""
    labels, y, u, v = open_parcels(parcels.flatten(0, -2), size)
    black, y_in_all, v_in_red, u_in_green, v_in_green, u_in_blue = (
        numbers[labels.int(), None, None] for numbers in _numbers(parcels.device)
    )
    light = _part(8 * y.int() - black, y_in_all)
    u, v = (8 * plane.int() - 8 * 128 for plane in (u, v))
    colours = (
        _part(v, v_in_red),
        _part(u, u_in_green) + _part(v, v_in_green),
        _part(u, u_in_blue),
    )
    pictures = torch.empty((len(y), 3, *size), dtype=torch.uint8, device=parcels.device)
    for channel, colour in enumerate(colours):
        pictures[:, channel] = (light + _widened(colour, size)).clamp_(0, _WHITE)
    if dtype == torch.float32:
        # A true division: multiplying by 1/255, as torch does with a number on a GPU, differs in
        # the last bit.
        pictures = pictures.float().div_(_white(parcels.device))
    return pictures.reshape(*parcels.shape[:-1], 3, *size)


def _part(values: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return ((values * factor) >> 16).to(torch.int16)


def _widened(colour: torch.Tensor, size: Size) -> torch.Tensor:
    """Return the colour of each pixel: that of the four it shares one with."""
    doubled = colour.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    return doubled[:, : size[0], : size[1]]


@functools.lru_cache(maxsize=16)
def _white(device: torch.device) -> torch.Tensor:
    return torch.full((1,), _WHITE, dtype=torch.float32, device=device)


@functools.lru_cache(maxsize=16)
def _numbers(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return a table for each of the numbers of `Drawing`, by label."""
    rows = [drawing_of(label) for label in range(NUM_LABELS)]
    return tuple(
        torch.tensor(column, dtype=torch.int32, device=device) for column in zip(*rows, strict=True)
    )
