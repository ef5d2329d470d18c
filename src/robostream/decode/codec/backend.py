# SPDX-License-Identifier: Apache-2.0
"""The interface of a decoder, so that one can be exchanged for another without other changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from robostream.decode.codec.runs import Run
from robostream.decode.index.frame_index import CodecConfig, FrameIndex
from robostream.decode.picture.decoded import DecodedFrame
from robostream.storage import ByteSource


@dataclass(frozen=True, slots=True)
class FileRun:
    """A run of one file, to be decoded."""

    source: ByteSource
    index: FrameIndex
    run: Run

    @property
    def config(self) -> CodecConfig:
        """The decoder set-up it needs."""
        return self.index.configs[self.run.config]


# (place in the list of runs, number, picture); number -1 and no picture for what is not asked for.
Decoded = tuple[int, int, DecodedFrame | None]


class Backend(Protocol):
    """Decodes runs of packets. For one thread."""

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place in `file_runs`, number, picture) for their frames, in no promised order.

        Every shown frame of a run's packets from `run.first_frame` on is yielded once. Other frames
        that had to be decoded are yielded with the number -1 and without a picture, so that they
        can be counted. A picture stays valid after the iterator has moved on. A damaged file is a
        VideoFileError.
        """
