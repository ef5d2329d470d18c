# SPDX-License-Identifier: Apache-2.0
"""Normalisation by a dataset's statistics: mean 0, standard deviation 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

# A joint that never moves has a standard deviation of 0.
_LEAST_STD = 1e-4


class Scale(nn.Module):
    """The mean and standard deviation of one feature, as buffers of the policy."""

    mean: Tensor
    std: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("std", torch.ones(shape))

    def learn(self, key: str, stats: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Set the statistics of a feature from `meta.stats`."""
        found = (stats or {}).get(key, {})
        if not {"mean", "std"} <= set(found):
            raise ValueError(
                f"want the mean and std of {key} in the dataset's meta/stats.json, found "
                f"{sorted(found) or 'nothing'}; a policy cannot be trained without them"
            )
        self.mean.copy_(torch.as_tensor(found["mean"]).reshape(self.mean.shape))
        self.std.copy_(torch.as_tensor(found["std"]).reshape(self.std.shape)).clamp_(_LEAST_STD)

    def forward(self, values: Tensor) -> Tensor:
        """Return the values normalised to mean 0 and standard deviation 1."""
        return (values - self.mean) / self.std

    def undo(self, values: Tensor) -> Tensor:
        """Return normalised values in the feature's own units."""
        return values * self.std + self.mean
