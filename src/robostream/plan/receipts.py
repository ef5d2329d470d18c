# SPDX-License-Identifier: Apache-2.0
"""Receipts: digests of sets of frames that add up.

The digest of the pair (episode, frame) is the product of a word of the episode and a word of the
frame, modulo 2^64; the digest of a set is the sum. So the digests of all ranks add up to the digest
of the global batch, and those of the batches to the digest of the epoch so far. The digest of a
whole episode, and so of any stretch of the line, is computed without looking at each frame. That is
why a receipt costs the same at every position.

Two receipts differ if the sets of frames do. They do not show in which order a set was delivered,
and they guard against accidents, not against forgery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from robostream.plan.hashing import Ints, Words, stream, words
from robostream.plan.line import Line

_EPISODES: Final = stream(0x45504953)
_FRAMES: Final = stream(0x4652414D)


def pair_digests(episodes: Ints, frames: Ints) -> Words:
    """Return the digest of each (episode, frame) pair. Pure."""
    return words(_EPISODES, episodes) * words(_FRAMES, frames)


def digest(episodes: Ints, frames: Ints) -> int:
    """Return the digest of a set of (episode, frame) pairs. Pure."""
    return int(pair_digests(episodes, frames).sum(dtype=np.uint64))


def format_receipt(value: int) -> str:
    """Return a digest as the 16 hexadecimal digits that stand in states and logs. Pure."""
    return f"{value % (1 << 64):016x}"


@dataclass(frozen=True, slots=True, eq=False)
class LineDigests:
    """The digests of all stretches of a line.

    Attributes:
        line: The line.
        segments: The digest of the first n segments of the line, for each n.
        frames: The sum of the words of the first n frames of any episode, for each n.
    """

    line: Line
    segments: Words
    frames: Words

    def between(self, start: int, stop: int) -> int:
        """Return the digest of the frames at the places [start, stop), modulo 2^64. Pure."""
        return self._before(stop) - self._before(start)

    def _before(self, place: int) -> int:
        line = self.line
        segment = int(np.searchsorted(line.starts, place, side="right")) - 1
        before = int(self.segments[segment])
        if place == line.num_frames:
            return before
        first = int(line.firsts[segment])
        stop = first + place - int(line.starts[segment])
        frames = int(self.frames[stop]) - int(self.frames[first])
        return before + int(words(_EPISODES, line.episodes[segment : segment + 1])[0]) * frames


def digest_line(line: Line) -> LineDigests:
    """Return the digests of a line, in O(segments + longest episode). Pure."""
    stops = line.firsts + np.diff(line.starts)
    frames = np.zeros(int(stops.max()) + 1, dtype=np.uint64)
    np.cumsum(words(_FRAMES, np.arange(frames.size - 1)), out=frames[1:])
    segments = np.zeros(stops.size + 1, dtype=np.uint64)
    own = frames[stops] - frames[line.firsts]
    np.cumsum(words(_EPISODES, line.episodes) * own, out=segments[1:])
    return LineDigests(line=line, segments=segments, frames=frames)
