# SPDX-License-Identifier: Apache-2.0
"""What a contestant delivers in an epoch: each frame once? the right pictures? in which order?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.bench.peers.contestants import Contestant, Request
from robostream.bench.peers.truth import Pictures, true_pictures
from robostream.meta import LeRobotDatasetMetadata


def check_delivery(contestant: Contestant, request: Request) -> dict[str, Any]:
    """Return what a whole epoch of a small dataset held, and whether workers change its order."""
    meta = LeRobotDatasetMetadata("bench/peers", root=request.root)
    truth = true_pictures(Path(request.root))
    order: list[int] = []
    right = wrong = 0
    distinct = []
    ends = meta.episodes["dataset_to_index"]
    for batch in contestant.open(request):
        indices = np.asarray(batch["index"]).reshape(-1)
        order += indices.tolist()
        distinct.append(len(np.unique(np.searchsorted(ends, indices, side="right"))))
        for place, index in enumerate(indices.tolist()):
            for key, pictures in truth.items():
                if is_right(batch[key][place], pictures, index):
                    right += 1
                else:
                    wrong += 1
    seen = Counter(order)
    other = _order(contestant.open(replace(request, workers=request.workers + 1)))
    return {
        "frames": meta.total_frames,
        "delivered": len(order),
        "missing": meta.total_frames - len(seen),
        "repeated": len(order) - len(seen),
        "wrong_pictures": wrong,
        "pictures": right + wrong,
        "same_order_with_more_workers": order == other,
        "episodes_per_batch": float(np.mean(distinct)),
    }


def is_right(picture: Any, pictures: Pictures, index: int) -> bool:
    """Return whether a delivered picture is, of all frames, nearest to that of its own.

    Decoders round colours differently; frames next to each other differ by more than that.
    """
    given = in_levels(picture)
    near = range(max(0, index - 3), min(len(pictures), index + 4))
    gaps = {at: float(np.abs(pictures[at] - given).mean()) for at in near}
    return gaps[index] <= min(gaps.values()) + 1e-6 and gaps[index] < _ROUNDING


def in_levels(picture: Any) -> npt.NDArray[np.float32]:
    """Return a picture as (height, width, 3) from 0 to 255; some loaders give 0 to 1. Pure."""
    given = np.asarray(picture)
    levels = given.astype(np.float32) * (255 if given.dtype.kind == "f" else 1)
    return levels.transpose(1, 2, 0) if levels.shape[0] == 3 else levels


# Two decoders' pictures of one frame differ by less than this on the average, in levels of 255.
# Pictures of two frames differ by far more.
_ROUNDING = 3.0


def _order(batches: Iterable[dict[str, Any]]) -> list[int]:
    return [int(index) for batch in batches for index in np.asarray(batch["index"]).reshape(-1)]
