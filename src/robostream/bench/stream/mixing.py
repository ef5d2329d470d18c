# SPDX-License-Identifier: Apache-2.0
"""How many episodes the batches of a run mixed, against a uniform shuffle."""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.tools import uniform_distinct


class Mixing:
    """Counts the episodes of batches.

    Args:
        lengths: The lengths of all episodes of the dataset.
        batch_size: Samples per batch.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], batch_size: int) -> None:
        self._uniform = uniform_distinct(lengths, batch_size)
        self._distinct: list[int] = []

    def add(self, batch: dict[str, Any]) -> None:
        """Count one batch."""
        self._distinct.append(len(np.unique(np.asarray(batch["episode_index"]))))

    def figures(self) -> dict[str, float]:
        """Return distinct episodes per batch, and as a share of a uniform shuffle's."""
        seen = mean(self._distinct)
        return {
            "episodes_per_batch_mean": seen,
            "episodes_per_batch_uniform": self._uniform,
            "shuffle_randomness_frac": seen / self._uniform,
        }
