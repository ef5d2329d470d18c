# SPDX-License-Identifier: Apache-2.0
"""Which file an episode goes to: the size rules of the format. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class FilePlace:
    """The chunk and file numbers that name a file."""

    chunk: int
    file: int

    def __post_init__(self) -> None:
        if not all(isinstance(number, int) for number in (self.chunk, self.file)):
            raise TypeError(f"want whole numbers of a chunk and a file, got {self}")

    def after(self, chunks_size: int) -> FilePlace:
        """Return the place of the next file; a chunk folder holds `chunks_size` files."""
        if self.file >= chunks_size - 1:
            return FilePlace(self.chunk + 1, 0)
        return FilePlace(self.chunk, self.file + 1)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file to which episodes may still be added, and what is in it so far.

    Attributes:
        place: Its numbers.
        size_bytes: Bytes of the episodes in it.
        num_frames: Frames of the episodes in it.
        parameters: A digest of the codec's parameters, which all episodes of a video share.
    """

    place: FilePlace
    size_bytes: int = 0
    num_frames: int = 0
    parameters: str = ""

    def with_episode(self, *, size_bytes: int, num_frames: int, parameters: str = "") -> OpenFile:
        """Return the file with one more episode in it."""
        return OpenFile(
            self.place, self.size_bytes + size_bytes, self.num_frames + num_frames, parameters
        )


@dataclass(frozen=True, slots=True)
class SizeRules:
    """When a file is full."""

    chunks_size: int
    data_limit_bytes: float
    video_limit_bytes: float


def data_file_for(current: OpenFile, *, num_frames: int, rules: SizeRules) -> OpenFile:
    """Return the Parquet file an episode of `num_frames` goes to: `current`, or an empty next one.

    The episode's size is estimated from the frames in the file, as LeRobot's recorder does.
    """
    if current.num_frames == 0:
        return current
    guess = current.size_bytes / current.num_frames * num_frames
    if current.size_bytes + guess >= rules.data_limit_bytes:
        return OpenFile(current.place.after(rules.chunks_size))
    return current


def video_file_for(
    current: OpenFile, *, size_bytes: int, parameters: str, rules: SizeRules
) -> OpenFile:
    """Return the MP4 an episode's video goes to: `current`, or an empty next one.

    Videos whose codec parameters differ cannot share a file, however small they are.
    """
    if current.num_frames == 0:
        return current
    full = current.size_bytes + size_bytes >= rules.video_limit_bytes
    if full or parameters != current.parameters:
        return OpenFile(current.place.after(rules.chunks_size))
    return current
