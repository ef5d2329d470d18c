# SPDX-License-Identifier: Apache-2.0
"""Which frames to decode beside those that are asked for, in random access.

Nobody knows which frames are asked for next, so others are decoded in two cases only: if a file is
being read in order, some frames after those asked for; and if a frame is asked for in a GOP whose
first frame is still kept from an earlier read, the rest of that GOP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from robostream.config import STRETCH_FRAMES
from robostream.decode.frame_index import FrameIndex
from robostream.decode.recent_frames import RecentFrames
from robostream.decode.video_files import VideoFile
from robostream.storage import LruCache

# A file counts as read in order once so many reads in a row began at most so many frames after the
# read before them.
_READS_IN_ORDER = 3
_MAX_GAP_FRAMES = 8
# The last reads of so many files are remembered; a sample has fewer cameras than that.
_REMEMBERED_FILES = 32
# The frames decoded ahead of one read take at most an eighth of the memory, because the cameras of
# a sample are read in turn.
_STRETCHES = 8
# A GOP is decoded whole only if it takes at most half of the memory.
_GOPS = 2


class _Trail(NamedTuple):
    """The last read of a file: it decoded frames of [first, stop), after `reads` reads in order."""

    first: int
    stop: int
    reads: int


class ReadingOrder:
    """Notices which files are read in order; remembers a few files. For one thread."""

    def __init__(self) -> None:
        self._trails: LruCache[str, _Trail] = LruCache(_REMEMBERED_FILES)

    def follows(self, file: str, first: int) -> bool:
        """Return whether a read that begins at frame `first` continues reading in order."""
        trail = self._trails.get(file)
        return trail is not None and _reads_in_order(trail, first) >= _READS_IN_ORDER

    def note(self, file: str, first: int, stop: int) -> None:
        """Note that a read has decoded frames of [first, stop)."""
        trail = self._trails.get(file)
        reads = 0 if trail is None else _reads_in_order(trail, first)
        self._trails.put(file, _Trail(first, stop, reads))


def frames_to_decode(
    file: VideoFile,
    wanted: list[int],
    within: tuple[int, int],
    order: ReadingOrder,
    recent: RecentFrames,
) -> list[int]:
    """Return the frames to decode, ascending: those wanted, and others beside them.

    Args:
        file: The file.
        wanted: Frame numbers that are asked for and not kept, ascending.
        within: Only frames of [first, stop) are decoded beside them.
        order: How files have been read; this read is noted there.
        recent: The frames that are kept.
    """
    index = file.index
    room = recent.budget_bytes // _picture_bytes(index)
    stretch = room // (_STRETCHES * len(wanted))
    is_in_order = order.follows(file.name, wanted[0])
    chosen = set(wanted)
    for number in wanted:
        first, stop = index.gop_of(number)
        beside: Iterable[int] = ()
        if is_in_order:
            beside = range(
                number, min(index.start_from(number + STRETCH_FRAMES), number + stretch, within[1])
            )
        elif stop - first <= room // _GOPS and (file.name, first) in recent:
            beside = range(max(first, within[0]), min(stop, within[1]))
        chosen.update(frame for frame in beside if (file.name, frame) not in recent)
    numbers = sorted(chosen)
    order.note(file.name, wanted[0], numbers[-1] + 1)
    return numbers


def _reads_in_order(trail: _Trail, first: int) -> int:
    """Return how many reads in a row are in order, with one more that begins at `first`."""
    is_next = trail.stop <= first < trail.stop + _MAX_GAP_FRAMES
    # Samples whose windows reach ahead overlap: each begins a little after the one before it.
    is_near = 0 < first - trail.first <= _MAX_GAP_FRAMES
    return trail.reads + 1 if is_next or is_near else 0


def _picture_bytes(index: FrameIndex) -> int:
    """Return the most bytes that a kept picture of a file may take, which is as RGB."""
    config = index.configs[0]
    return max(3 * config.width * config.height, 1)
