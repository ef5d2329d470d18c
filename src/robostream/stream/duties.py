# SPDX-License-Identifier: Apache-2.0
"""Which worker does what: a rank's workers share its lanes and cameras by arithmetic. Pure.

A worker owns (lane, camera) pairs: the pictures of that camera in all samples of that lane. The
rows of a lane (numbers, masks, texts) belong to one worker too. So every part of every batch is
built by exactly one worker, and no picture is decoded by two. As every lane delivers equally many
frames, workers have about equally much to do.

Extras, the samples that belong to no lane of the rank (frames that complete the tail, stand-ins for
quarantined frames), are given to workers by their place in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, slots=True)
class Duties:
    """What worker number `worker` of `num_workers` owns, in samples with `num_cameras` cameras."""

    worker: int
    num_workers: int
    num_cameras: int

    def __post_init__(self) -> None:
        if not (0 <= self.worker < self.num_workers and self.num_cameras >= 0):
            raise ValueError(
                "want 0 <= worker < num_workers and num_cameras >= 0, got "
                f"worker={self.worker}, num_workers={self.num_workers}, "
                f"num_cameras={self.num_cameras}"
            )

    def owns_rows(self, lane: int) -> bool:
        """Return whether the rows of the rank's lane number `lane` are this worker's."""
        return lane % self.num_workers == self.worker

    def cameras(self, lane: int) -> list[int]:
        """Return the cameras of the rank's lane number `lane` whose pictures are this worker's.

        Workers get the (lane, camera) pairs in turn, lane by lane. If the numbers of cameras and
        workers have a common divisor, a camera would always go to the same workers, and one camera
        may cost more than another. So the cameras move on by one whenever it would be the first
        worker's turn with the first camera again.
        """
        if not self.num_cameras:
            return []
        lanes_per_turn = self.num_workers // gcd(self.num_cameras, self.num_workers)
        shift = lane // lanes_per_turn
        first = lane * self.num_cameras
        return [
            camera
            for camera in range(self.num_cameras)
            if (first + (camera + shift) % self.num_cameras) % self.num_workers == self.worker
        ]

    def owns_extra_rows(self, place: int) -> bool:
        """Return whether this worker writes the rows of an extra at a place of the batch."""
        return place % self.num_workers == self.worker

    def extra_cameras(self, place: int) -> list[int]:
        """Return the cameras this worker draws of an extra at a place of the batch."""
        first = place * self.num_cameras
        cameras = range(self.num_cameras)
        return [c for c in cameras if (first + c) % self.num_workers == self.worker]
