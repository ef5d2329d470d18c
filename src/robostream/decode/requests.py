# SPDX-License-Identifier: Apache-2.0
"""What is asked of the engine, and how far it has got with it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.decode.frame_index import FrameIndex, Int64s
from robostream.decode.render import Layout
from robostream.errors import VideoFileError
from robostream.fetch import ByteSource

# Several threads that share out samples in order take steps of this many frames at most.
_STEP_IN_ORDER = 8


@dataclass(slots=True)
class HeldFile:
    """What is held open for one file."""

    name: str
    source: ByteSource
    index: FrameIndex
    stretches: Int64s
    layout: Layout | None = None
    last_read: int = -1
    steps: int = 0

    def follows(self, numbers: list[int]) -> bool:
        """Note a read and return whether it is the third or a later one of reads in order."""
        first = min(numbers, default=-1)
        is_step = 0 <= first - self.last_read <= _STEP_IN_ORDER
        self.last_read = first
        self.steps = self.steps + 1 if is_step else 0
        return self.steps >= 2


class Want(NamedTuple):
    """Frames of one file to write into `out`, in the order given.

    Attributes:
        file: The file's name, as `open_source` knows it.
        frames: Frame numbers in presentation order, T of them; they may repeat.
        out: (T, 3, height, width) uint8, or float32 in [0, 1]; for depth (T, 1, height, width)
            uint16 codes. Each picture must be contiguous.
        position: Where in the order the sample stands; needed with `next_uses`.
        within: Frames [first, stop) anybody may want, an episode's say; the whole file if None.
    """

    file: str
    frames: npt.ArrayLike
    out: npt.NDArray[Any]
    position: int | None = None
    within: tuple[int, int] | None = None


@dataclass(slots=True)
class Job:
    """One want in progress: `rows` maps the frames still wanted to their rows of `out`.

    `repeats` are rows to be filled with what another holds: a window that reaches beyond its
    episode has the same frame several times in a row.
    """

    file: HeldFile
    rows: dict[int, int]
    repeats: list[tuple[slice, int]]
    out: npt.NDArray[Any]
    position: int
    bounds: tuple[int, int]
    is_in_order: bool

    def fill_repeats(self) -> None:
        """Copy the frames that are wanted more than once."""
        for rows, first in self.repeats:
            self.out[rows] = self.out[first]


def begin(want: Want, file: HeldFile, *, is_planned: bool) -> Job:
    """Check a want and return the job it makes; with no plan, note whether reads come in order."""
    numbers = np.asarray(want.frames, np.int64).tolist()
    _check_request(file.index, numbers, want.out)
    rows, repeats = _first_rows(numbers)
    bounds = want.within or (0, file.index.num_frames)
    is_in_order = not is_planned and file.follows(numbers)
    return Job(file, rows, repeats, want.out, want.position or 0, bounds, is_in_order)


def check_served(job: Job, wanted: list[int]) -> None:
    """Raise VideoFileError if a frame that was to be decoded did not come."""
    missing = [frame for frame in wanted if frame in job.rows]
    if missing:
        raise VideoFileError(
            f"{job.file.index.file}: the decoder gave no picture for frame {missing[0]}. The file "
            "is damaged; download or copy it again."
        )


def _first_rows(numbers: list[int]) -> tuple[dict[int, int], list[tuple[slice, int]]]:
    """Return the first row of each frame, and the rows that repeat one."""
    rows: dict[int, int] = {}
    repeats: list[tuple[slice, int]] = []
    row = 0
    for number, same in itertools.groupby(numbers):
        stop = row + len(list(same))
        first = rows.setdefault(number, row)
        again = row + 1 if first == row else row
        if again < stop:
            repeats.append((slice(again, stop), first))
        row = stop
    return rows, repeats


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
