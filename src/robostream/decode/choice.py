# SPDX-License-Identifier: Apache-2.0
"""Which frames to decode when some are missing, and which of them to keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from robostream.decode.frame_index import FrameIndex, Int64s
from robostream.decode.render import Layout
from robostream.decode.runs import Run, plan_runs
from robostream.decode.slot_table import NEVER
from robostream.decode.store import FrameStore

_NO_USES = np.full((0, 1), NEVER)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Runs that decode the wanted frames, and which frames to keep, the soonest used first.

    `uses` has a row for each frame to keep.
    """

    wanted: list[int]
    runs: list[Run]
    keep: list[int]
    uses: Int64s


@dataclass(frozen=True, slots=True)
class Miss:
    """Frames of one stretch that are wanted now and not kept.

    Attributes:
        file: The file they are in.
        wanted: The frames, ascending.
        first: First frame that may be decoded beside them.
        stop: One past the last.
        position: The position of the sample that wants them.
        is_in_order: Whether the read before this one was of frames just before these.
        layout: How this file's frames are kept, once known.
    """

    file: str
    wanted: Int64s
    first: int
    stop: int
    position: int
    is_in_order: bool
    layout: Layout | None


def choose_wanted(index: FrameIndex, wanted: Iterable[int]) -> Choice:
    """Return a choice that decodes what is wanted and keeps nothing. Pure."""
    frames = sorted(wanted)
    return Choice(frames, plan_runs(index, frames), [], _NO_USES)


def choose_by_recency(index: FrameIndex, miss: Miss, store: FrameStore) -> Choice:
    """Return a choice for when the future is not known: keep all that is decoded on the way.

    More than what is wanted is decoded on evidence only: the whole stretch when frames are read in
    order, a whole GOP when its first frame is still kept from an earlier visit.
    """
    frames = miss.wanted
    if miss.is_in_order:
        frames = np.arange(miss.first, miss.stop)
    else:
        gops = np.unique(index.gops_of(frames))
        edges = np.append(index.start_frames, index.num_frames)
        is_known = store.holds(miss.file, edges[gops].tolist())
        again = [
            gop
            for gop, known in zip(gops.tolist(), is_known, strict=True)
            if known and edges[gop + 1] - edges[gop] <= store.capacity(miss.layout) // 2
        ]
        whole = [np.arange(edges[g], edges[g + 1]) for g in again]
        frames = np.unique(np.concatenate([frames, *whole]))
    runs = plan_runs(index, frames)
    decoded = [
        frame
        for run in runs
        for frame in index.frames_of(run.first_packet, run.stop_packet)
        if frame >= run.first_frame
    ]
    held = store.holds(miss.file, decoded)
    keep = [frame for frame, is_held in zip(decoded, held, strict=True) if not is_held]
    # What is new counts as used sooner than all that is kept.
    return Choice(miss.wanted.tolist(), runs, keep, np.full((len(keep), 1), -NEVER))


def choose_by_next_use(index: FrameIndex, miss: Miss, store: FrameStore) -> Choice:
    """Return a choice that also decodes what will be used again, as far as there is room for it.

    With room for the whole stretch, all its frames that have a use ahead are decoded and kept. With
    less, only the GOPs of the wanted frames are looked at: decoding others now saves nothing, and
    what they would push out has to be decoded again.
    """
    assert store.next_uses is not None
    frames = np.arange(miss.first, miss.stop)
    at_wanted = miss.wanted - miss.first
    uses = _without(store.next_uses(miss.file, frames, store.served), at_wanted, miss.position)
    due = uses[:, 0]
    keep = due != NEVER
    # What is used up is kept for another epoch, where there is room.
    keep[at_wanted] |= store.keeps_used
    keep &= ~np.array(store.holds(miss.file, frames.tolist()))
    if miss.layout is not None:
        count = int(np.count_nonzero(keep))
        free, before = store.room(miss.layout, count)
        if free < count:
            keep &= np.isin(index.gops_of(frames), index.gops_of(miss.wanted))
            keep &= (np.argsort(np.argsort(due, kind="stable")) < free) | (due < before)
    decode = keep.copy()
    decode[at_wanted] = True
    kept = np.flatnonzero(keep)
    kept = kept[np.argsort(due[kept], kind="stable")]
    runs = plan_runs(index, frames[decode])
    return Choice(miss.wanted.tolist(), runs, frames[kept].tolist(), uses[kept])


def _without(uses: Int64s, rows: Int64s, position: int) -> Int64s:
    """Return uses without the one of `rows` that is being served. Pure.

    All rows lose their last column, so that one without a NEVER still says that it may go on.
    """
    uses = uses.copy()
    uses[rows] = np.sort(np.where(uses[rows] == position, NEVER, uses[rows]), axis=1)
    return uses[:, :-1] if uses.shape[1] > 1 else uses
