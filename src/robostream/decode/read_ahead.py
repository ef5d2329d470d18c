# SPDX-License-Identifier: Apache-2.0
"""What to decode beside the frames that are wanted, where nobody knows what is wanted next.

Nothing, but on evidence: a stretch ahead where a file is read in order, the rest of a GOP that is
visited a second time while its first frame is still kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from robostream.config import STRETCH_FRAMES
from robostream.decode.index.frame_index import FrameIndex
from robostream.decode.recent_frames import RecentFrames
from robostream.decode.video_files import VideoFile

# A file is read in order from its fourth read on, each at most this many frames behind the last.
_STEP_FRAMES = 8
_STEPS = 3
# Files that were read lately are remembered; more than a sample has cameras.
_REMEMBERED_FILES = 32
# A stretch takes at most this part of the memory: cameras are read side by side.
_STRETCHES = 8
# Of a GOP that is decoded whole, this much.
_GOPS = 2


class _Trail(NamedTuple):
    """The first frame of the last decoding, the frame after its last, and the steps up to it."""

    first: int
    stop: int
    steps: int


class ReadingOrder:
    """Notices which files are read in order; remembers a few files. For one thread."""

    def __init__(self) -> None:
        self._trails: OrderedDict[str, _Trail] = OrderedDict()

    def follows(self, file: str, first: int) -> bool:
        """Return whether a file has been read in order up to this frame, which must be decoded."""
        trail = self._trails.get(file)
        return trail is not None and _steps(trail, first) >= _STEPS

    def note(self, file: str, first: int, stop: int) -> None:
        """Note that frames from `first` on and below `stop` are decoded."""
        trail = self._trails.pop(file, None)
        steps = 0 if trail is None else _steps(trail, first)
        self._trails[file] = _Trail(first, stop, steps)
        if len(self._trails) > _REMEMBERED_FILES:
            self._trails.popitem(last=False)


def frames_to_decode(
    file: VideoFile,
    wanted: list[int],
    within: tuple[int, int],
    order: ReadingOrder,
    recent: RecentFrames,
) -> list[int]:
    """Return the frames to decode, ascending, for those that are wanted and not kept; note them.

    Args:
        file: The file.
        wanted: Frame numbers, ascending.
        within: Frames [first, stop) anybody may want.
        order: How files have been read.
        recent: What is kept.
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


def _steps(trail: _Trail, first: int) -> int:
    is_next = trail.stop <= first < trail.stop + _STEP_FRAMES
    # Windows that reach ahead want a little more at each of their frames.
    is_near = 0 < first - trail.first <= _STEP_FRAMES
    return trail.steps + 1 if is_next or is_near else 0


def _picture_bytes(index: FrameIndex) -> int:
    """Return the most bytes a kept picture takes: as RGB."""
    config = index.configs[0]
    return max(3 * config.width * config.height, 1)
