# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures of a whole selection, kept once for all processes that map the memory.

Every picture has a slot of its own, so nothing is allocated, dropped or locked. For each slot there
is a number, its cell: 0 until the picture is written, then a code of the picture's layout. A
process writes the picture first and the cell second. Two processes that decode the same picture
write the same bytes. In a file on disk each slot also has a checksum, written before the cell; a
process compares it before it first draws the picture, and decodes a damaged one again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.batches.clip import Clip
from robostream.decode import FrameLayout, SlotMemory, kept_layout
from robostream.plan import Ints

logger = logging.getLogger(__name__)

# Pictures begin after a multiple of this many bytes, where vector instructions are fast; and as
# many bytes are left at the end, because these instructions may read past the last picture.
_ALIGN_BYTES = 4096
_KINDS = ("yuv420p", "yuvj420p", "rgb", "depth")
_SUMMED_WORDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class SharedFrameLayout:
    """Where the pictures of a selection lie.

    Attributes:
        episodes: The selected episodes, ascending.
        cameras: The names of the cameras.
        starts: For each episode, the frames of the selected episodes before it; then all frames.
        sizes: (width, height) of each camera.
        slot_bytes: Bytes of a picture of each camera; 0 for one that is not kept.
        has_checksums: Whether pictures are kept with checksums, because they lie on a disk.
    """

    episodes: Ints
    cameras: tuple[str, ...]
    starts: Ints
    sizes: tuple[tuple[int, int], ...]
    slot_bytes: tuple[int, ...]
    has_checksums: bool = False

    @property
    def num_slots(self) -> int:
        """Slots of all cameras, those that are not kept too."""
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
        """Bytes of all checksums, which lie behind the cells."""
        return _aligned(4 * self.num_slots) if self.has_checksums else 0

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        pictures = self.num_frames * sum(self.slot_bytes)
        return self.cells_bytes + self.checksums_bytes + pictures + _ALIGN_BYTES


class SharedFrameCache:
    """The shared pictures, as one process reads and writes them. For one thread of it."""

    keeps_used = True

    def __init__(self, memory: npt.NDArray[np.uint8], shape: SharedFrameLayout) -> None:
        self.evictions = 0
        self._memory = memory
        self._address = memory.ctypes.data
        self._shape = shape
        cells = memory[: 2 * shape.num_slots].view(np.uint16)
        self._cells = cells.reshape(len(shape.slot_bytes), shape.num_frames)
        checksums = memory[shape.cells_bytes :][: 4 * shape.num_slots * shape.has_checksums]
        self._checksums = checksums.view(np.uint32)
        self._is_checked = bytearray(len(self._checksums))
        self._has_warned = False
        before = np.concatenate([[0], np.cumsum(shape.slot_bytes)]) * shape.num_frames
        self._begins: list[int] = (shape.cells_bytes + shape.checksums_bytes + before).tolist()

    def open(self, reel: Clip) -> None:
        """Note in a new reel which of its pictures are kept already."""
        place = int(np.searchsorted(self._shape.episodes, reel.episode))
        reel.base = int(self._shape.starts[place]) + reel.first
        cells = self._cells[reel.camera, reel.base : reel.base + len(reel)]
        begin = reel.camera * self._shape.num_frames + reel.base
        kept = np.flatnonzero(cells)
        first = next((p for p in kept.tolist() if self._is_sound(reel, p, begin + p)), None)
        if first is not None:
            width, height = self._shape.sizes[reel.camera]
            reel.layout = _layout_of_cell(int(cells[first]), width, height)
            for picture in kept[cells[kept] == cells[first]].tolist():
                reel.slots[picture] = begin + picture

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return whether all pictures of an episode's frames [first, stop) are kept already."""
        start = int(self._shape.starts[np.searchsorted(self._shape.episodes, episode)])
        return bool(self._cells[camera, start + first : start + stop].all())

    def take(self, reel: Clip, picture: int, layout: FrameLayout) -> int | None:
        """Return the slot of a picture, or None if it has another size or kind than its slot."""
        is_of_size = (layout.width, layout.height) == self._shape.sizes[reel.camera]
        if not is_of_size or layout.nbytes != self._shape.slot_bytes[reel.camera]:
            return None
        return reel.camera * self._shape.num_frames + reel.base + picture

    def publish(self, slot: int, layout: FrameLayout) -> None:
        """Tell all processes that a picture has been written."""
        cell = _cell_of_layout(layout)
        if self._shape.has_checksums:
            self._checksums[slot] = self._checksum(slot, cell)
            self._is_checked[slot] = True
        self._cells.reshape(-1)[slot] = cell

    def check(self, reel: Clip, pictures: Iterable[int]) -> None:
        """Forget those of a reel's kept pictures whose bytes are damaged."""
        if self._shape.has_checksums:
            for picture in pictures:
                slot = reel.slots[picture]
                if slot >= 0 and not self._is_sound(reel, picture, slot):
                    reel.slots[picture] = -1

    def _is_sound(self, reel: Clip, picture: int, slot: int) -> bool:
        """Return whether a kept picture is as it was written; if not, tell all processes."""
        if not self._shape.has_checksums or self._is_checked[slot]:
            return True
        cells = self._cells.reshape(-1)
        if self._checksum(slot, int(cells[slot])) == self._checksums[slot]:
            self._is_checked[slot] = True
            return True
        cells[slot] = 0
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "frame_cache_dir: %s, episode %d, frame %d: the kept picture is damaged and is "
                "decoded again. Check the disk. Other pictures are not named.",
                *(self._shape.cameras[reel.camera], reel.episode, reel.first + picture),
            )
        return False

    def _checksum(self, slot: int, cell: int) -> int:
        """Return a checksum of a picture, its slot and its cell.

        It adds up the words that are `_SUMMED_WORDS` apart, which takes a tenth of the time that a
        CRC-32 of all bytes takes, and returns the CRC-32 of the sums.
        """
        words = self.memory(slot).content.view(np.uint64)
        whole = len(words) // _SUMMED_WORDS * _SUMMED_WORDS
        sums = words[:whole].reshape(-1, _SUMMED_WORDS).sum(axis=0)
        seed = zlib.crc32(slot.to_bytes(8, "little") + cell.to_bytes(2, "little"))
        return zlib.crc32(words[whole:].tobytes(), zlib.crc32(sums.tobytes(), seed))

    def memory(self, slot: int) -> SlotMemory:
        """Return the memory of a slot."""
        camera, frame = divmod(slot, self._shape.num_frames)
        nbytes = self._shape.slot_bytes[camera]
        at = self._begins[camera] + frame * nbytes
        return SlotMemory(self._memory[at : at + nbytes], self._address + at)

    def release(self, slot: int) -> None:
        """Do nothing: pictures stay for the next epoch."""


def _cell_of_layout(layout: FrameLayout) -> int:
    kind = _KINDS.index(layout.kind)
    return 1 | kind << 1 | (layout.colorspace & 0xFF) << 3 | (layout.color_range & 0xF) << 11


def _layout_of_cell(cell: int, width: int, height: int) -> FrameLayout:
    kind = _KINDS[cell >> 1 & 3]
    return kept_layout(kind, width, height, cell >> 3 & 0xFF, cell >> 11 & 0xF)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
