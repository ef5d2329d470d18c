# SPDX-License-Identifier: Apache-2.0
"""Where every frame of a video file lies, when it is shown, and where decoding it must start.

Packets are decoded in runs; each run goes to a decoder in one go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, inf, isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.errors import FrameTimestampError
from robostream.plan import LONG_GOP_FRAMES

Int64s = npt.NDArray[np.int64]
_LISTED_MISSES = 5


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The settings of a decoder: FFmpeg's name of it, header bytes and frame size."""

    decoder: str
    extradata: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class FrameIndex:
    """The frames of one video file.

    A frame's number is its place in presentation order; a packet's number is its place in decode
    order. `starts` are the packets at which decoding may begin, `start_frames` their frames, both
    ascending: a decoder that begins at starts[i] gives every frame from start_frames[i] on exactly.
    (The leading frames of an open GOP come after its key packet but are shown before it; by this
    rule they belong to the GOP before.)

    Attributes:
        file: The path or URL, for messages.
        file_bytes: The file's size when it was indexed.
        time_base: Seconds per tick of `pts`.
        pts: Presentation time of each frame in ticks, ascending.
        packets: The packet of each frame; None if frames and packets are in the same order.
        frames: The frame of each packet, -1 for one never shown; None if `packets` is.
        byte_offsets: Where each packet begins in the file.
        sizes: Bytes of each packet.
        configs: Decoder set-ups; most files have one.
        start_configs: Which of `configs` holds from each start on.
    """

    file: str
    file_bytes: int
    time_base: Fraction
    pts: npt.NDArray[np.integer[Any]]
    packets: npt.NDArray[np.integer[Any]] | None
    frames: npt.NDArray[np.integer[Any]] | None
    byte_offsets: npt.NDArray[np.integer[Any]]
    sizes: npt.NDArray[np.integer[Any]]
    starts: npt.NDArray[np.integer[Any]]
    start_frames: npt.NDArray[np.integer[Any]]
    configs: tuple[CodecConfig, ...]
    start_configs: npt.NDArray[np.integer[Any]]

    @property
    def num_frames(self) -> int:
        """Number of frames that are shown."""
        return len(self.pts)

    def gop_lengths(self) -> Int64s:
        """Return how many frames each GOP has."""
        lengths: Int64s = np.diff(np.append(self.start_frames, self.num_frames))
        return lengths

    @property
    def has_long_gops(self) -> bool:
        """Whether its GOPs are so long, on average, that decoders wait inside them."""
        return len(self.pts) > LONG_GOP_FRAMES * len(self.starts)

    def times_s(self, frames: slice | list[int] = slice(None)) -> npt.NDArray[np.float64]:
        """Return the presentation times of some frames, or all, in seconds, in 64 bits."""
        ticks = self.pts[frames].astype(np.float64)
        return ticks * self.time_base.numerator / self.time_base.denominator

    def ends_s(self) -> tuple[float, float]:
        """Return the presentation times of the first frame and the last."""
        first_s, last_s = self.times_s([0, -1]).tolist()
        return first_s, last_s

    def match(self, times_s: npt.NDArray[np.float64], *, tolerance_s: float, where: str) -> Int64s:
        """Return the number of the frame nearest to each time.

        This is the one place that decides whether a frame is the wanted one: its time must lie
        within `tolerance_s`, compared in 64 bits.

        Args:
            times_s: Wanted times in the file, in seconds.
            tolerance_s: The largest distance accepted, in seconds.
            where: Camera and episode, for the message.
        """
        wanted = np.asarray(times_s, np.float64)
        # A file may have hours, of which an episode is a minute. So only frames from two before the
        # first time to one after the last are compared; a tick more, since times are rounded.
        ticks_per_s = self.time_base.denominator / self.time_base.numerator
        first = float(wanted.min(initial=inf)) * ticks_per_s
        last = float(wanted.max(initial=-inf)) * ticks_per_s
        begin, stop = 0, len(self.pts)
        if isfinite(first) and isfinite(last):
            begin = max(bisect_left(self.pts, floor(first) - 1) - 2, 0)
            stop = min(bisect_right(self.pts, ceil(last) + 1) + 1, stop)
        have = self.times_s(slice(begin, stop))
        right = np.minimum(np.maximum(np.searchsorted(have, wanted), 1), len(have) - 1)
        left = np.maximum(right - 1, 0)
        nearest = np.where(np.abs(wanted - have[left]) <= np.abs(have[right] - wanted), left, right)
        # Written with "not", so that a time that is NaN counts as missed too.
        missed = ~(np.abs(wanted - have[nearest]) <= tolerance_s)
        if np.any(missed):
            raise FrameTimestampError(
                self._describe_misses(wanted, have[nearest], missed, tolerance_s, where)
            )
        numbers: Int64s = nearest + begin
        return numbers

    def _describe_misses(
        self,
        wanted: npt.NDArray[np.float64],
        found: npt.NDArray[np.float64],
        missed: npt.NDArray[np.bool_],
        tolerance_s: float,
        where: str,
    ) -> str:
        pairs = list(zip(wanted[missed], found[missed], strict=True))
        listed = "; ".join(f"{w:.6f} s, nearest {f:.6f} s" for w, f in pairs[:_LISTED_MISSES])
        more = f"; and {len(pairs) - _LISTED_MISSES} more" if len(pairs) > _LISTED_MISSES else ""
        first_s, last_s = self.ends_s()
        return (
            f"{where}: no frame within {tolerance_s} s of {len(pairs)} of {len(wanted)} wanted "
            f"times ({listed}{more}) in {self.file}, which has {self.num_frames} frames from "
            f"{first_s:.6f} s to {last_s:.6f} s. The video and the table do "
            "not belong together, or tolerance_s is too small for this video's clock."
        )

    def packets_of(self, frames: Int64s) -> Int64s:
        """Return the packets of frames."""
        return frames if self.packets is None else self.packets[frames].astype(np.int64)

    def frames_of(self, first: int, stop: int) -> list[int]:
        """Return the frames of the packets [first, stop); -1 for one that is never shown."""
        if self.frames is None:
            return list(range(first, stop))
        numbers: list[int] = self.frames[first:stop].tolist()
        return numbers

    def config_of(self, frame: int) -> CodecConfig:
        """Return the decoder set-up a frame needs."""
        return plan_runs(self, [frame])[0].config

    def gops_of(self, frames: Int64s) -> Int64s:
        """Return which start each frame decodes from, as a place in `starts`."""
        # With keys of another type, numpy would convert the whole array for every look-up.
        keys = frames.astype(self.start_frames.dtype)
        return np.maximum(self.start_frames.searchsorted(keys, "right") - 1, 0)


class Run(NamedTuple):
    """Packets [first_packet, stop_packet) of one file, decoded in one go.

    Only frames from `first_frame` on are exact: frames before it depend on packets before the run.
    """

    first_packet: int
    stop_packet: int
    first_frame: int
    config: CodecConfig


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
        gop = max(bisect_right(index.start_frames, int(frames[0])) - 1, 0)
        last = int(frames[-1])
        gops, stops = [gop], [(last if index.packets is None else int(index.packets[last])) + 1]
    else:
        frames = np.asarray(frames, np.int64)
        gop_of, stop_of = index.gops_of(frames), index.packets_of(frames) + 1
        first, config = index.starts[gop_of], index.start_configs[gop_of]
        reached = np.maximum.accumulate(stop_of)
        is_separate = (first[1:] > reached[:-1]) | (config[1:] != config[:-1])
        heads = np.append(0, np.flatnonzero(is_separate) + 1)
        gops, stops = gop_of[heads].tolist(), np.maximum.reduceat(stop_of, heads).tolist()
    runs = []
    for gop, stop in zip(gops, stops, strict=True):
        settings = index.configs[index.start_configs[gop]]
        runs.append(Run(int(index.starts[gop]), stop, int(index.start_frames[gop]), settings))
    return runs


def start_earlier(index: FrameIndex, run: Run) -> Run | None:
    """Return the run with the GOP before it added; None if that has other settings. Pure."""
    gop = int(np.searchsorted(index.starts, run.first_packet)) - 1
    if gop < 0 or index.configs[index.start_configs[gop]] is not run.config:
        return None
    start, first = int(index.starts[gop]), int(index.start_frames[gop])
    return Run(start, run.stop_packet, first, run.config)


def packet_span(index: FrameIndex, frames: Int64s | Sequence[int]) -> tuple[int, int]:
    """Return the bytes [start, stop) that hold all packets some frames (ascending) need. Pure."""
    runs = plan_runs(index, frames)
    packets = slice(runs[0].first_packet, max(run.stop_packet for run in runs))
    offsets, sizes = index.byte_offsets[packets], index.sizes[packets]
    return int(offsets.min()), int((offsets.astype(np.int64) + sizes).max())


def compact(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """Return the same numbers in 32 bits where they fit, else in 64. Pure."""
    fits = not len(values) or (
        int(values.min()) >= np.iinfo(np.int32).min and int(values.max()) <= np.iinfo(np.int32).max
    )
    return values.astype(np.int32 if fits else np.int64)
