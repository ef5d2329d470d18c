# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures of a whole selection, kept once for all processes that map the memory.

Every picture has a slot of its own, so nothing is allocated, dropped or locked. For each slot there
is a number, its cell: 0 until the picture is written, then a code of the picture's layout. A
process writes the picture first and the cell second. Two processes that decode the same picture
write the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.decode import PictureLayout, SlotMemory, kept_layout
from robostream.plan import Ints
from robostream.stream.reel import Reel

# Pictures begin after a multiple of this many bytes, where vector instructions are fast; and as
# many bytes are left at the end, because these instructions may read past the last picture.
_ALIGN_BYTES = 4096
_KINDS = ("yuv420p", "yuvj420p", "rgb", "depth")


@dataclass(frozen=True, slots=True, eq=False)
class SharedShape:
    """Where the pictures of a selection lie.

    Attributes:
        episodes: The selected episodes, ascending.
        cameras: The names of the cameras.
        starts: For each episode, the frames of the selected episodes before it; then all frames.
        sizes: (width, height) of each camera.
        slot_bytes: Bytes of a picture of each camera; 0 for one that is not kept.
    """

    episodes: Ints
    cameras: tuple[str, ...]
    starts: Ints
    sizes: tuple[tuple[int, int], ...]
    slot_bytes: tuple[int, ...]

    @property
    def num_frames(self) -> int:
        """Frames of the selection."""
        return int(self.starts[-1])

    @property
    def cells_bytes(self) -> int:
        """Bytes of all cells."""
        return _aligned(2 * len(self.slot_bytes) * self.num_frames)

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        return self.cells_bytes + self.num_frames * sum(self.slot_bytes) + _ALIGN_BYTES


class SharedFrames:
    """The shared pictures, as one process reads and writes them. For one thread of it."""

    keeps_used = True

    def __init__(self, memory: npt.NDArray[np.uint8], shape: SharedShape) -> None:
        self.evictions = 0
        self._memory = memory
        self._address = memory.ctypes.data
        self._shape = shape
        cells = memory[: 2 * len(shape.slot_bytes) * shape.num_frames].view(np.uint16)
        self._cells = cells.reshape(len(shape.slot_bytes), shape.num_frames)
        before = np.concatenate([[0], np.cumsum(shape.slot_bytes)]) * shape.num_frames
        self._begins: list[int] = (shape.cells_bytes + before).tolist()

    def open(self, reel: Reel) -> None:
        """Note in a new reel which of its pictures are kept already."""
        place = int(np.searchsorted(self._shape.episodes, reel.episode))
        reel.base = int(self._shape.starts[place]) + reel.first
        cells = self._cells[reel.camera, reel.base : reel.base + len(reel)]
        kept = np.flatnonzero(cells)
        if len(kept):
            width, height = self._shape.sizes[reel.camera]
            reel.layout = _layout_of_cell(int(cells[kept[0]]), width, height)
            first = reel.camera * self._shape.num_frames + reel.base
            for picture in kept[cells[kept] == cells[kept[0]]].tolist():
                reel.slots[picture] = first + picture

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return whether all pictures of an episode's frames [first, stop) are kept already."""
        start = int(self._shape.starts[np.searchsorted(self._shape.episodes, episode)])
        return bool(self._cells[camera, start + first : start + stop].all())

    def take(self, reel: Reel, picture: int, layout: PictureLayout) -> int | None:
        """Return the slot of a picture, or None if it has another size or kind than its slot."""
        is_of_size = (layout.width, layout.height) == self._shape.sizes[reel.camera]
        if not is_of_size or layout.nbytes != self._shape.slot_bytes[reel.camera]:
            return None
        return reel.camera * self._shape.num_frames + reel.base + picture

    def publish(self, slot: int, layout: PictureLayout) -> None:
        """Tell all processes that a picture has been written."""
        self._cells.reshape(-1)[slot] = _cell_of_layout(layout)

    def memory(self, slot: int) -> SlotMemory:
        """Return the memory of a slot."""
        camera, frame = divmod(slot, self._shape.num_frames)
        nbytes = self._shape.slot_bytes[camera]
        at = self._begins[camera] + frame * nbytes
        return SlotMemory(self._memory[at : at + nbytes], self._address + at)

    def release(self, slot: int) -> None:
        """Do nothing: pictures stay for the next epoch."""


def _cell_of_layout(layout: PictureLayout) -> int:
    kind = _KINDS.index(layout.kind)
    return 1 | kind << 1 | (layout.colorspace & 0xFF) << 3 | (layout.color_range & 0xF) << 11


def _layout_of_cell(cell: int, width: int, height: int) -> PictureLayout:
    kind = _KINDS[cell >> 1 & 3]
    return kept_layout(kind, width, height, cell >> 3 & 0xFF, cell >> 11 & 0xF)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
