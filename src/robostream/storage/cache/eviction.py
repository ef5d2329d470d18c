# SPDX-License-Identifier: Apache-2.0
"""Which blocks go when room is needed. Pure.

First those that no living process said it will use, least recently used ones first; then those
with the furthest next use. So runs of the past give way before the present one, and inside a run
what goes is what it needs last. The unit is an extent of neighbouring blocks: as much worth as its
best block, so that the choice stays quick in a large cache and holes are not too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.storage.cache.layout import Flags, runs

EXTENT_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Extents:
    """What lies in one file of the cache, by extent.

    Attributes:
        nbytes: The space each takes.
        wanted: Which hold a block that a living process said it will use.
        worths: Of two that are wanted alike, the one of lower worth goes first.
    """

    nbytes: npt.NDArray[np.int64]
    wanted: Flags
    worths: npt.NDArray[np.float64]


def weigh(
    held_bytes: npt.NDArray[np.int64],
    wanted: Flags,
    dues: npt.NDArray[np.float64],
    uses: npt.NDArray[np.uint32],
) -> Extents:
    """Return the extents of a file.

    Args:
        held_bytes: The space each block takes, 0 for one that is not there.
        wanted: Which blocks a living process said it will use.
        dues: When, on that process's clock.
        uses: When each block was used last, in seconds since 1970.
    """
    begins = np.arange(0, len(held_bytes), EXTENT_BLOCKS)
    if not len(begins):
        return Extents(np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0))
    held = held_bytes > 0
    wanted = held & wanted
    last_use = np.maximum.reduceat(np.where(held, uses, 0.0), begins)
    next_use = np.minimum.reduceat(np.where(wanted, dues, np.inf), begins)
    is_wanted = np.logical_or.reduceat(wanted, begins)
    worths = np.where(is_wanted, -next_use, last_use)
    return Extents(np.add.reduceat(held_bytes, begins), is_wanted, worths)


def one_extent(nbytes: int, last_use_s: float) -> Extents:
    """Return a file that stays or goes as a whole."""
    return Extents(np.array([nbytes]), np.zeros(1, bool), np.array([last_use_s]))


def choose_victims(
    files: Sequence[Extents],
    needed_bytes: int,
    *,
    least_bytes: int = 0,
    due: float | None = None,
) -> list[tuple[int, Flags]]:
    """Return (number of the file, which of its extents) to drop for `needed_bytes` to be free.

    Args:
        files: What there is.
        needed_bytes: How much should go.
        least_bytes: Nothing goes unless so much can.
        due: Extents that are wanted at this time or sooner stay; with None, any may go.
    """
    if not files or needed_bytes <= 0:
        return []
    nbytes = np.concatenate([each.nbytes for each in files])
    wanted = np.concatenate([each.wanted for each in files])
    worths = np.concatenate([each.worths for each in files])
    order = np.lexsort((worths, wanted))
    may_go = nbytes > 0
    if due is not None:
        may_go &= ~wanted | (worths < -due) | np.isneginf(worths)
    order = order[may_go[order]]
    if not len(order) or nbytes[order].sum() < least_bytes:
        return []
    count = int(np.searchsorted(np.cumsum(nbytes[order]), needed_bytes)) + 1
    chosen = np.zeros(len(nbytes), dtype=bool)
    chosen[order[:count]] = True
    parts = np.split(chosen, np.cumsum([len(each.nbytes) for each in files])[:-1])
    return [(number, part) for number, part in enumerate(parts) if part.any()]


def blocks_of(extents: Flags, held: Flags) -> list[range]:
    """Return the runs of blocks that lie in some extents of a file."""
    return runs(held & np.repeat(extents, EXTENT_BLOCKS)[: len(held)])
