# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 without its head: a picture to a grid of features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Channels are normalised in so many groups (fewer where there are not so many channels).
_GROUPS = 8


def resnet18(width: int) -> nn.Sequential:
    """Return a ResNet-18 that gives 8 x width features at 1/32 of the picture's resolution.

    Its normalisation is over groups of channels, not over the batch: what it computes for a
    picture then does not depend on which others share its process, so a batch may be cut over any
    number of them.
    """
    widths = [width, 2 * width, 4 * width, 8 * width]
    stages = [
        layer
        for before, after in zip([width, *widths], widths, strict=False)
        for layer in (_Block(before, after, 1 if after == width else 2), _Block(after, after, 1))
    ]
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        _norm(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        *stages,
    )


class _Block(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.first_norm = _norm(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = _norm(after)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            around = nn.Conv2d(before, after, 1, stride, bias=False)
            self.around = nn.Sequential(around, _norm(after))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.around(x))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(_GROUPS, channels), channels)
