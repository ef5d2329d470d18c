# SPDX-License-Identifier: Apache-2.0
"""How much memory decoded pictures get, and whether a whole selection is kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robostream.assemble import FrameSelection, SampleLayout
from robostream.batches import SharedFrameLayout
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.plan import EpochPlan, margin_frames

# Of the memory that is left to a process and the other ranks of its machine, for decoded pictures.
_SHARE_OF_MEMORY = 4
# Pictures on a conveyor leave at random: this much more than their mean number.
_SLACK = 1.1
# So do those of a lead-in, and their GOPs begin before it. One that finds no room costs its GOP.
_LEAD_IN_SLACK = 1.3


@dataclass(frozen=True, slots=True)
class FrameBudget:
    """Memory for the decoded pictures of a rank.

    Attributes:
        nbytes: How much.
        keeps_all: Whether that holds all pictures of the selection, which then stay.
        reason: Why so much, for the log.
    """

    nbytes: int
    keeps_all: bool
    reason: str


def shared_shape(
    layout: SampleLayout, selection: FrameSelection, *, on_disk: bool
) -> SharedFrameLayout:
    """Return where the pictures of a whole selection would lie. Pure."""
    videos, cameras = layout.spec.videos, layout.cameras
    return SharedFrameLayout(
        episodes=selection.episodes,
        cameras=tuple(camera.key for camera in cameras),
        starts=np.concatenate([[0], np.cumsum(selection.lengths)]),
        sizes=tuple((camera.stack[3], camera.stack[2]) for camera in cameras),
        slot_bytes=tuple(
            -(-camera.kept_bytes // 64) * 64 if camera.key in videos else 0 for camera in cameras
        ),
        has_checksums=on_disk,
    )


def choose_frame_budget(
    asked: int | str,
    shape: SharedFrameLayout | None,
    needed: int,
    *,
    memory: int,
    ranks: int,
    on_disk: bool,
) -> FrameBudget:
    """Return how much memory decoded pictures get. Pure.

    Args:
        asked: Bytes, a text such as "2GiB", or "auto".
        shape: Where the pictures of the whole selection would lie; None if they are never shared.
        needed: Bytes with which a conveyor decodes every picture once.
        memory: Bytes this process may use.
        ranks: How many ranks share them.
        on_disk: Whether pictures are kept in a file instead.
    """
    whole = shape.nbytes if shape is not None and any(shape.slot_bytes) else 0
    if on_disk and whole:
        return FrameBudget(0, True, f"{format_bytes(whole)} of them are kept on disk")
    if asked != "auto":
        nbytes = parse_bytes(asked)
        return FrameBudget(nbytes, 0 < whole <= nbytes, "as asked for")
    most = memory // _SHARE_OF_MEMORY // ranks
    if shape is not None and whole <= most:
        return FrameBudget(whole, whole > 0, "all decoded pictures of the selection fit")
    if needed <= most:
        return FrameBudget(needed, False, "what the lanes need")
    reason = f"a quarter of the memory left to {ranks} ranks; the lanes would need "
    return FrameBudget(most, False, reason + format_bytes(needed))


class NeededBytes(NamedTuple):
    """The memory with which a rank decodes every picture about once.

    Attributes:
        lanes: For its conveyors.
        lead_in: For pictures that an epoch decodes at its begin and delivers at its end.
    """

    lanes: int
    lead_in: int


def needed_bytes(
    plan: EpochPlan, layout: SampleLayout, lanes: int, *, decodes_whole_gops: bool
) -> NeededBytes:
    """Return the memory that a rank with so many lanes needs. Pure.

    Half of a window's pictures are decoded and not yet delivered, on the average. A camera's own
    window keeps pictures for as many frames longer as it is wide. A lane that is hardly longer than
    its window has partners waiting all over it. Where GOPs of any length are decoded whole, one
    more of them waits in each lane.

    In a lead-in, half a window of each lane lies between the pictures that are delivered at first.
    In a long GOP they are decoded on the way, and to decode them again for the epoch's end takes as
    long as the whole pool. In a short one it takes little, and no memory is planned for them.
    """
    conveyors = lead_in = 0.0
    most = plan.num_frames / plan.lanes
    for camera in layout.cameras:
        if camera.key not in layout.spec.videos:
            continue
        offsets = layout.spec.windows.get(camera.key)
        width = 0 if offsets is None else int(offsets.max() - offsets.min())
        ahead = margin_frames(plan.window) + (camera.gop_frames if decodes_whole_gops else 0)
        frames = min(plan.window / 2 * _SLACK + width + ahead, most)
        conveyors += lanes * frames * camera.kept_bytes
        if camera.has_long_gops and not decodes_whole_gops:
            more = min(plan.window / 2 * _LEAD_IN_SLACK, most - frames)
            lead_in += lanes * more * camera.kept_bytes
    return NeededBytes(round(conveyors), round(lead_in))
