# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 without its head: from an image to a grid of features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# The most groups of channels that are normalised together.
_GROUPS = 8


def resnet18(width: int) -> nn.Sequential:
    """Return a ResNet-18 that computes 8 x width features at 1/32 of the image resolution.

    It uses group instead of batch normalisation. The features of an image then do not depend on the
    other images of the process, so any number of processes can share a batch.
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
    """Two 3x3 convolutions and a shortcut."""

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
