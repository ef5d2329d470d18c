# SPDX-License-Identifier: Apache-2.0
"""FrameEngine: random access to frames of video files by number.

The frames read next are unknown, so others are decoded with those that are wanted in two cases
only: if a file is being read in order, some frames after the wanted ones; and if the first frame of
a wanted frame's GOP is still cached from an earlier read, the rest of that GOP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.config import STRETCH_FRAMES
from robostream.decode.backends import Backend
from robostream.decode.clip import Clip, Uses
from robostream.decode.decoder import FrameDecoder, raise_missing
from robostream.decode.frame_cache import FrameCache, Pack
from robostream.decode.frame_index import FrameIndex
from robostream.decode.frames import DecodedFrame, PackedFrame, allocate
from robostream.decode.statistics import Meter
from robostream.decode.video_files import VideoFiles
from robostream.storage import ByteSource, LruCache

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


@dataclass(frozen=True, slots=True, eq=False)
class FileSlots:
    """The slots of one file's frames: their numbers if they are cached."""

    file: str
    frames: LruCache[tuple[str, int], PackedFrame]

    def __getitem__(self, frame: int) -> int:
        return frame if (self.file, frame) in self.frames else -1

    def __setitem__(self, frame: int, slot: int) -> None:
        raise TypeError("a frame's slot is its number")


class LruFrameCache(FrameCache):
    """Frames by file and number, at most `budget_bytes`; the least recently used are evicted.

    They stay when their file is closed.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.keeps_used = budget_bytes > 0
        self._frames: LruCache[tuple[str, int], PackedFrame] = LruCache(
            budget_bytes, weigh=lambda packed: packed.layout.nbytes
        )

    def slots(self, clip: Clip) -> FileSlots:
        """Return the slots of a file's frames; they change with the cache."""
        return FileSlots(clip.file.name, self._frames)

    def packed(self, clip: Clip, slots: Sequence[int]) -> list[PackedFrame]:
        """Return the frames in some slots; they count as used now."""
        name = clip.file.name
        return [packed for slot in slots if (packed := self._frames.get((name, slot)))]

    def add(self, uses: Uses, frame: int, decoded: DecodedFrame, pack: Pack) -> bool:
        """Cache a frame that is not cached yet; return False if it exceeds the whole budget."""
        layout = decoded.layout
        if layout.nbytes > self.budget_bytes:
            return False
        memory = None
        for oldest in self._frames.evict_for(layout.nbytes):
            # Reuse the evicted frame's memory: fresh pages would cost more than the copy.
            if oldest.layout.nbytes == layout.nbytes:
                memory = oldest.content, oldest.address
        packed = PackedFrame(*(memory or allocate(layout.nbytes)), layout)
        pack(decoded, packed)
        self._frames.put((uses.clip.file.name, frame), packed)
        return True

    def release(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some frames that are cached."""
        for frame in frames:
            self._frames.forget((uses.clip.file.name, frame))

    def take_evictions(self) -> int:
        """Return how many frames were evicted since the last call."""
        return self._frames.take_evictions()

    def clear(self) -> None:
        """Drop all frames."""
        self._frames.clear()


class FrameEngine:
    """Reads frames by number into arrays. For one thread at a time, of the process that made it.

    Args:
        open_source: Opens a file's bytes by the name `read` is called with.
        budget_bytes: Budget for cached frames; 0 decodes each frame when it is wanted.
        max_files: How many files are open at most.
        backend: Decodes; PyAV unless given.
        index_folder: Where the indices of files are saved; one folder per version of a dataset.
    """

    def __init__(
        self,
        open_source: Callable[[str], ByteSource],
        *,
        budget_bytes: int,
        max_files: int,
        backend: Backend | None = None,
        index_folder: Path | None = None,
    ) -> None:
        self.statistics = self._meter = Meter()
        self.files = VideoFiles(
            open_source, max_files=max_files, index_folder=index_folder, meter=self._meter
        )
        self._cache = LruFrameCache(budget_bytes)
        self._decoder = FrameDecoder(self._cache, self._meter, backend=backend)
        self._last_reads: LastReads = LruCache(_REMEMBERED_FILES)

    def __enter__(self) -> FrameEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files and drop all cached frames."""
        self._count()
        self.files.clear()
        self._cache.clear()

    def read(
        self,
        file: str,
        frames: npt.ArrayLike,
        out: npt.NDArray[Any],
        *,
        within: tuple[int, int] | None = None,
        resize: bool = False,
    ) -> None:
        """Write frames of one file, in the order given; they may repeat.

        Args:
            file: The file's name, as `open_source` knows it.
            frames: Frame numbers in presentation order, T of them.
            out: (T, 3, height, width) uint8, or float32 in [0, 1]; for depth (T, 1, height, width)
                uint16 codes. Each frame must be contiguous.
            within: Only frames of [first, stop) are decoded besides the wanted ones, such as the
                frames of an episode; None for the whole file.
            resize: Scale frames to the size of `out`, which must be the same in every call.
        """
        numbers: list[int] = np.asarray(frames, np.int64).tolist()
        held = self.files.get(file)
        num_frames = held.index.num_frames
        _check_request(held.index, numbers, out)
        size = (out.shape[2], out.shape[3]) if resize else None
        clip = Clip(held, range(num_frames), size=size)
        slots = self._cache.slots(clip)
        rows: dict[int, int] = {}
        for row, number in enumerate(numbers):
            rows.setdefault(number, row)
        missing: dict[int, int] = {}
        began = time.perf_counter()
        try:
            for number, row in rows.items():
                if slots[number] < 0:
                    missing[number] = row
                else:
                    self._decoder.draw_cached(clip, [number], out[row : row + 1])
            self._meter.convert_s += time.perf_counter() - began
            if missing:
                self._decode(Uses(clip, missing, slots), out, within or (0, num_frames))
            if len(rows) < len(numbers):
                for row, number in enumerate(numbers):
                    if rows[number] != row:
                        out[row] = out[rows[number]]
            self._meter.images_delivered += len(numbers)
        finally:
            self._count()

    def _decode(self, uses: Uses, out: npt.NDArray[Any], within: tuple[int, int]) -> None:
        """Decode and draw the frames needed now, and cache all frames decoded on the way."""
        chosen = frames_to_decode(uses, within, self._last_reads, self._cache.budget_bytes)
        left = dict(uses.now)

        def deliver(frame: int, decoded: DecodedFrame) -> None:
            self._decoder.draw_decoded(uses.clip, decoded, out[left.pop(frame)])

        try:
            self._decoder.decode([(uses, chosen)], deliver)
            if left:
                raise_missing(uses.clip, min(left))
        except BaseException:
            # Frames decoded before an error may have the wrong numbers.
            self._cache.release(uses, range(len(uses.clip)))
            raise

    def _count(self) -> None:
        self._decoder.count_evictions()
        self._meter.flush()


class LastRead(NamedTuple):
    """The last read of a file: it decoded frames of [first, stop), after `reads` reads in order."""

    first: int
    stop: int
    reads: int


LastReads = LruCache[str, LastRead]
"""The last reads of a few files, by which it is noticed that a file is read in order."""


def frames_to_decode(
    uses: Uses, within: tuple[int, int], last_reads: LastReads, budget_bytes: int
) -> list[int]:
    """Return the frames to decode, ascending: those needed now, and others `within` a range.

    Notes the read in `last_reads`.
    """
    clip, slots, wanted = uses.clip, uses.slots, sorted(uses.now)
    name, config = clip.file.name, clip.file.index.configs[0]
    # A cached frame takes most memory as RGB.
    capacity = budget_bytes // max(3 * config.width * config.height, 1)
    stretch = capacity // (_STRETCHES * len(wanted))
    reads = reads_in_order(last_reads.get(name), wanted[0])
    chosen = set(wanted)
    for number in wanted:
        first, stop = clip.gop_of(number)
        others: Iterable[int] = ()
        if reads >= _READS_IN_ORDER:
            end = clip.start_from(number + STRETCH_FRAMES)
            others = range(number, min(end, number + stretch, within[1]))
        elif stop - first <= capacity // _GOPS and slots[first] >= 0:
            others = range(max(first, within[0]), min(stop, within[1]))
        chosen.update(frame for frame in others if slots[frame] < 0)
    last_reads.put(name, LastRead(wanted[0], max(chosen) + 1, reads))
    return sorted(chosen)


def reads_in_order(last: LastRead | None, first: int) -> int:
    """Return how many reads in a row are in order, with one more that begins at `first`."""
    if last is None:
        return 0
    is_next = last.stop <= first < last.stop + _MAX_GAP_FRAMES
    # Samples whose windows reach ahead overlap: each begins a little after the one before it.
    is_near = 0 < first - last.first <= _MAX_GAP_FRAMES
    return last.reads + 1 if is_next or is_near else 0


def _check_request(index: FrameIndex, numbers: list[int], out: npt.NDArray[Any]) -> None:
    if out.ndim != 4 or len(out) != len(numbers):
        raise ValueError(
            f"want out of shape (T, C, H, W) with T={len(numbers)} slots, got {out.shape}"
        )
    if numbers and not (min(numbers) >= 0 and max(numbers) < index.num_frames):
        raise IndexError(
            f"{index.file} has frames 0 to {index.num_frames - 1}; asked for {min(numbers)} to "
            f"{max(numbers)}"
        )
