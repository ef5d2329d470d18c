# SPDX-License-Identifier: Apache-2.0
"""The rate in each stretch of a run, in which a stall shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# The rate is given for each stretch of this many seconds.
STRETCH_S = 2.0
# A stall at the start, if there is one, lies within so many stretches.
START_STRETCHES = 10


def stretch_rates(arrivals_s: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return how many came per second in each stretch since the start. Pure.

    The last stretch, which the end cuts short, counts only where there is no other.
    """
    whole = int(arrivals_s[-1] // STRETCH_S)
    if whole == 0:
        return [sum(counts) / arrivals_s[-1]]
    edges = np.arange(whole + 1) * STRETCH_S
    delivered, _ = np.histogram(arrivals_s, bins=edges, weights=np.array(counts, float))
    return [float(count) / STRETCH_S for count in delivered]
