# SPDX-License-Identifier: Apache-2.0
"""The projectors of one process: one for the cameras that the CPU decodes, one for the GPU's."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from robostream.batches.clip import Clip
from robostream.batches.clip_decoder import ClipDecoder


class ClipDecoders:
    """Hands the pictures of each camera to the projector that has it. For one thread.

    Args:
        on_cpu: Has all cameras but some.
        on_gpu: Has those; None if there are none.
        gpu_cameras: The numbers of those.
    """

    def __init__(
        self, on_cpu: ClipDecoder, on_gpu: ClipDecoder | None, gpu_cameras: Collection[int]
    ) -> None:
        self._on_cpu = on_cpu
        self._on_gpu = on_gpu
        self._gpu_cameras = frozenset(gpu_cameras)

    def is_on_gpu(self, camera: int) -> bool:
        """Return whether the GPU decodes a camera."""
        return camera in self._gpu_cameras

    def decode(self, wanted: Iterable[tuple[Clip, list[int]]]) -> None:
        """Decode pictures of reels, ascending; each reel may be named once."""
        if self._on_gpu is None:
            self._on_cpu.decode(wanted)
            return
        wanted = list(wanted)
        self._on_gpu.decode([w for w in wanted if self.is_on_gpu(w[0].camera)])
        self._on_cpu.decode([w for w in wanted if not self.is_on_gpu(w[0].camera)])

    def draw(self, reel: Clip, pictures: list[int], out: Any) -> None:
        """Write pictures into the slots of a sample and count them as delivered."""
        self._of(reel).draw(reel, pictures, out)

    def end_batch(self) -> None:
        """Forget the pictures that are not kept."""
        self._on_cpu.end_batch()
        if self._on_gpu is not None:
            self._on_gpu.end_batch()

    def close(self, reel: Clip) -> None:
        """Give back the slots and the decoder of a reel."""
        self._of(reel).close(reel)

    def _of(self, reel: Clip) -> ClipDecoder:
        if self._on_gpu is not None and self.is_on_gpu(reel.camera):
            return self._on_gpu
        return self._on_cpu
