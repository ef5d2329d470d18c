# SPDX-License-Identifier: Apache-2.0
"""What decodes: one small interface, so that a decoder can be swapped without touching the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import av

from robostream.decode.frame_index import FrameIndex
from robostream.decode.runs import Run
from robostream.fetch import ByteSource


class Backend(Protocol):
    """Decodes runs of packets. Called by many threads at once."""

    def decode(
        self, source: ByteSource, index: FrameIndex, run: Run
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield (number, frame) for the frames of a run, each once, in no promised order.

        Every shown frame of the run's packets from `run.first_frame` on is yielded. What else had
        to be decoded is yielded too, as number -1, so that it is counted. A frame stays valid after
        the iterator has moved on. Damage is a VideoFileError.
        """
