# SPDX-License-Identifier: Apache-2.0
"""Which packets a set of frames needs: runs, each fed to a decoder in one go. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robostream.decode.index.frame_index import FrameIndex, Int64s

_TRUE = np.ones(1, bool)


class Run(NamedTuple):
    """Packets [first_packet, stop_packet) of one file, decoded in one go.

    Only frames from `first_frame` on are exact: frames before it depend on packets before the run.
    """

    first_packet: int
    stop_packet: int
    first_frame: int
    config: int


def plan_runs(index: FrameIndex, frames: Int64s | Sequence[int]) -> list[Run]:
    """Return the fewest runs that decode all `frames` (ascending). Pure.

    A GOP is decoded from its start to its last wanted packet; GOPs that touch become one run.
    """
    if not len(frames):
        return []
    in_order = index.packets is None and len(index.configs) == 1
    if len(frames) == 1 or (in_order and frames[-1] - frames[0] < len(frames)):
        # One frame, or frames without a gap, stored in order: by far the most frequent case. It is
        # done without numpy, which is slow with single numbers.
        return [_run_through(index, int(frames[0]), int(frames[-1]))]
    frames = np.asarray(frames, np.int64)
    gops = index.gops_of(frames)
    stops = index.packets_of(frames) + 1
    first, config = index.starts[gops], index.start_configs[gops]
    reached = np.maximum.accumulate(stops)
    is_apart = (first[1:] > reached[:-1]) | (config[1:] != config[:-1])
    heads = np.flatnonzero(np.concatenate([_TRUE, is_apart]))
    last_stops = np.maximum.reduceat(stops, heads)
    return [
        _gop_run(index, gop, stop)
        for gop, stop in zip(gops[heads].tolist(), last_stops.tolist(), strict=True)
    ]


def start_earlier(index: FrameIndex, run: Run) -> Run | None:
    """Return the run with the GOP before it added, or None if that has another set-up. Pure."""
    gop = int(np.searchsorted(index.starts, run.first_packet)) - 1
    if gop < 0 or index.start_configs[gop] != run.config:
        return None
    return _gop_run(index, gop, run.stop_packet)


def _run_through(index: FrameIndex, first: int, last: int) -> Run:
    gop = max(bisect_right(index.start_frames, first) - 1, 0)
    packet = last if index.packets is None else int(index.packets[last])
    return _gop_run(index, gop, packet + 1)


def _gop_run(index: FrameIndex, gop: int, stop: int) -> Run:
    return Run(
        first_packet=int(index.starts[gop]),
        stop_packet=stop,
        first_frame=int(index.start_frames[gop]),
        config=int(index.start_configs[gop]),
    )
