# SPDX-License-Identifier: Apache-2.0
"""How much memory decoded pictures get, and whether a whole selection is kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robostream.assemble import FrameSelection, SampleLayout
from robostream.batches import SharedFrameLayout
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.plan import CameraFrames, EpochPlan, FrameMemory, frame_memory

# Of the memory that is left to a process and the other ranks of its machine, for decoded pictures.
_SHARE_OF_MEMORY = 4


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
            -(-camera.cached_bytes // 64) * 64 if camera.key in videos else 0 for camera in cameras
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


def needed_bytes(
    plan: EpochPlan, layout: SampleLayout, lanes: int, *, decodes_whole_gops: bool
) -> FrameMemory:
    """Return the memory that a rank with so many lanes needs for decoded frames. Pure."""
    windows = layout.spec.windows
    cameras = (
        CameraFrames(
            frame_bytes=camera.cached_bytes,
            gop_frames=camera.gop_frames,
            window_frames=int(np.ptp(windows[camera.key])) if camera.key in windows else 0,
            has_long_gops=camera.has_long_gops,
        )
        for camera in layout.cameras
        if camera.key in layout.spec.videos
    )
    return frame_memory(plan, lanes, cameras, decodes_whole_gops=decodes_whole_gops)
