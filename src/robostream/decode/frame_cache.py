# SPDX-License-Identifier: Apache-2.0
"""What a cache of decoded frames does, and the cache of a whole selection for all processes.

The other caches are those of one process: by next use for streaming (`next_use_cache.py`), and
least recently used for random access (`random_access.py`).

All processes map the memory of the shared cache. Every frame has a slot of its own, so nothing is
allocated, evicted or locked. Each slot has a number, its cell: 0 until the frame is written, then a
code of the frame's layout. A process writes the frame first and the cell second. Two processes that
decode the same frame write the same bytes. In a file on disk each slot also has a checksum, written
before the cell; a process compares it before it first draws the frame, and decodes a damaged one
again.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.decode.clip import NEVER, Clip, Uses
from robostream.decode.frames import DecodedFrame, FrameLayout, PackedFrame, frame_layout
from robostream.plan import Ints

logger = logging.getLogger(__name__)

# Frames begin after a multiple of this many bytes, where vector instructions are fast; and as many
# bytes are left at the end, because these instructions may read past the last frame.
_ALIGN_BYTES = 4096
_KINDS = ("yuv420p", "yuvj420p", "rgb", "depth")
_SUMMED_WORDS = 64

# Writes a decoded frame into memory.
Pack = Callable[[DecodedFrame, PackedFrame], None]


class FrameCache:
    """Packed frames of clips; their slots are in `Uses.slots`. For one thread.

    By default nothing is to be opened, released or checked.

    Attributes:
        keeps_used: Whether frames stay after their last delivery.
        has_checksums: Whether frames may be found damaged, because they lie on a disk.
    """

    keeps_used: bool = False
    has_checksums: bool = False

    def packed(self, clip: Clip, slots: Sequence[int]) -> list[PackedFrame]:
        """Return the frames of a clip in some slots; they count as used."""
        raise NotImplementedError

    def add(self, uses: Uses, frame: int, decoded: DecodedFrame, pack: Pack) -> bool:
        """Cache a frame of an open clip; return False if it is not to be cached."""
        raise NotImplementedError

    def open(self, uses: Uses) -> None:
        """Begin to cache frames of a clip; find those that are cached already."""

    def close(self, uses: Uses) -> None:
        """Release all frames of a clip that are of no use to others."""

    def release(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some frames that are cached and of no use to others."""

    def drop_damaged(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some cached frames whose bytes are damaged."""

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return whether all frames [first, stop) of an episode are cached for later epochs."""
        return False

    def has_room(self, frames: int, until: int = NEVER) -> bool:
        """Return whether so many more frames can be cached.

        Only frames that are delivered after the next `until` steps may be evicted for them.
        """
        return self.keeps_used

    def take_evictions(self) -> int:
        """Return how many frames were evicted since the last call."""
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class SharedFrameLayout:
    """Where the frames of a selection lie.

    Attributes:
        episodes: The selected episodes, ascending.
        cameras: The names of the cameras.
        starts: For each episode, the frames of the selected episodes before it; then all frames.
        sizes: (width, height) of each camera.
        slot_bytes: Bytes of a frame of each camera; 0 for one that is not cached.
        has_checksums: Whether frames have checksums, because they lie on a disk.
    """

    episodes: Ints
    cameras: tuple[str, ...]
    starts: Ints
    sizes: tuple[tuple[int, int], ...]
    slot_bytes: tuple[int, ...]
    has_checksums: bool = False

    @property
    def num_slots(self) -> int:
        """Slots of all cameras, also of those that are not cached."""
        return len(self.slot_bytes) * self.num_frames

    @property
    def num_frames(self) -> int:
        """Frames of the selection."""
        return int(self.starts[-1])

    @property
    def cells_bytes(self) -> int:
        """Bytes of all cells."""
        return _aligned(2 * self.num_slots)

    @property
    def checksums_bytes(self) -> int:
        """Bytes of all checksums, which follow the cells."""
        return _aligned(4 * self.num_slots) if self.has_checksums else 0

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        frames = self.num_frames * sum(self.slot_bytes)
        return self.cells_bytes + self.checksums_bytes + frames + _ALIGN_BYTES


class SharedFrameCache(FrameCache):
    """The shared frames, as one process reads and writes them. For one thread of it.

    The cached frames of a clip have one layout; a frame of another one is not cached.
    """

    keeps_used = True

    def __init__(self, memory: npt.NDArray[np.uint8], shape: SharedFrameLayout) -> None:
        self.has_checksums = shape.has_checksums
        self._memory = memory
        self._address = memory.ctypes.data
        self._shape = shape
        self._num_frames = shape.num_frames
        self._cells = memory[: 2 * shape.num_slots].view(np.uint16)
        checksums = memory[shape.cells_bytes :][: 4 * shape.num_slots * shape.has_checksums]
        self._checksums = checksums.view(np.uint32)
        self._is_checked = bytearray(len(self._checksums))
        self._has_warned = False
        # Where slot 0 would begin if the slots of all cameras had the size of this one's.
        self._origins: list[int] = []
        begin = shape.cells_bytes + shape.checksums_bytes
        for camera, nbytes in enumerate(shape.slot_bytes):
            self._origins.append(begin - camera * shape.num_frames * nbytes)
            begin += shape.num_frames * nbytes
        # Of each open clip: the slot of its frame 0, and the layout of its frames.
        self._first_slot: dict[Clip, int] = {}
        self._layouts: dict[Clip, FrameLayout] = {}

    def open(self, uses: Uses) -> None:
        """Begin to cache frames of a clip; find those that are cached already."""
        clip = uses.clip
        first = self._first_slot[clip] = self._slot(clip.camera, clip.episode, clip.first)
        cells = self._cells[first : first + len(clip.numbers)]
        cached = np.flatnonzero(cells)
        for sound in cached.tolist():
            if self._is_sound(clip, sound, first + sound):
                size = self._shape.sizes[clip.camera]
                self._layouts[clip] = _layout_of_cell(int(cells[sound]), *size)
                for frame in cached[cells[cached] == cells[sound]].tolist():
                    uses.slots[frame] = first + frame
                return

    def close(self, uses: Uses) -> None:
        """Forget a clip; its frames stay."""
        self._first_slot.pop(uses.clip, None)
        self._layouts.pop(uses.clip, None)

    def packed(self, clip: Clip, slots: Sequence[int]) -> list[PackedFrame]:
        """Return the frames of a clip in some slots."""
        memory, address, layout = self._memory, self._address, self._layouts[clip]
        origin, nbytes = self._origins[clip.camera], self._shape.slot_bytes[clip.camera]
        found = []
        for slot in slots:
            at = origin + slot * nbytes
            found.append(PackedFrame(memory[at : at + nbytes], address + at, layout))
        return found

    def add(self, uses: Uses, frame: int, decoded: DecodedFrame, pack: Pack) -> bool:
        """Cache a frame, unless it has another size or layout than its slot and its clip."""
        clip, layout, shape = uses.clip, decoded.layout, self._shape
        if (
            (layout.width, layout.height) != shape.sizes[clip.camera]
            or layout.nbytes != shape.slot_bytes[clip.camera]
            or self._layouts.setdefault(clip, layout) is not layout
        ):
            return False
        slot = self._first_slot[clip] + frame
        at = self._origins[clip.camera] + slot * layout.nbytes
        content = self._memory[at : at + layout.nbytes]
        pack(decoded, PackedFrame(content, self._address + at, layout))
        cell = _cell_of_layout(layout)
        if self.has_checksums:
            self._checksums[slot] = _checksum(content, slot, cell)
            self._is_checked[slot] = True
        self._cells[slot] = cell  # last: from now on, all processes see the frame
        uses.slots[frame] = slot
        return True

    def drop_damaged(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some cached frames whose bytes are damaged."""
        for frame in frames:
            slot = uses.slots[frame]
            if slot >= 0 and not self._is_sound(uses.clip, frame, slot):
                uses.slots[frame] = -1

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return whether all frames [first, stop) of an episode are cached already."""
        begin = self._slot(camera, episode, 0)
        return bool(self._cells[begin + first : begin + stop].all())

    def _slot(self, camera: int, episode: int, frame: int) -> int:
        place = int(np.searchsorted(self._shape.episodes, episode))
        return camera * self._num_frames + int(self._shape.starts[place]) + frame

    def _is_sound(self, clip: Clip, frame: int, slot: int) -> bool:
        """Return whether a cached frame is as it was written; if not, clear its cell."""
        if not self.has_checksums or self._is_checked[slot]:
            return True
        cell, nbytes = int(self._cells[slot]), self._shape.slot_bytes[clip.camera]
        content = self._memory[self._origins[clip.camera] + slot * nbytes :][:nbytes]
        if _checksum(content, slot, cell) == self._checksums[slot]:
            self._is_checked[slot] = True
            return True
        self._cells[slot] = 0
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "frame_cache_dir: %s, episode %d, frame %d: the cached frame is damaged and is "
                "decoded again. Check the disk. Other frames are not named.",
                *(self._shape.cameras[clip.camera], clip.episode, clip.first + frame),
            )
        return False


def _checksum(content: npt.NDArray[np.uint8], slot: int, cell: int) -> int:
    """Return a checksum of a frame's bytes, its slot and its cell. Pure.

    It adds up the words that are `_SUMMED_WORDS` apart, which takes a tenth of the time that a
    CRC-32 of all bytes takes, and returns the CRC-32 of the sums.
    """
    words = content.view(np.uint64)
    whole = len(words) // _SUMMED_WORDS * _SUMMED_WORDS
    sums = words[:whole].reshape(-1, _SUMMED_WORDS).sum(axis=0)
    seed = zlib.crc32(slot.to_bytes(8, "little") + cell.to_bytes(2, "little"))
    return zlib.crc32(words[whole:].tobytes(), zlib.crc32(sums.tobytes(), seed))


@functools.cache
def _cell_of_layout(layout: FrameLayout) -> int:
    kind = _KINDS.index(layout.kind)
    return 1 | kind << 1 | (layout.colorspace & 0xFF) << 3 | (layout.color_range & 0xF) << 11


def _layout_of_cell(cell: int, width: int, height: int) -> FrameLayout:
    kind = _KINDS[cell >> 1 & 3]
    return frame_layout(kind, width, height, cell >> 3 & 0xFF, cell >> 11 & 0xF)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
