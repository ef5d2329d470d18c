# SPDX-License-Identifier: Apache-2.0
"""Who does what: a rank's workers share its lanes and cameras by arithmetic. Pure.

A worker owns (lane, camera) pairs: the pictures of that camera in all samples of that lane. The
rows of a lane (numbers, masks, texts) have one owner too. So every part of every batch has exactly
one worker, no picture is decoded by two, and all advance evenly, because lanes do.

What belongs to no lane of the rank (frames that complete the tail, stand-ins for quarantined
places) is dealt out by its place in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, slots=True)
class Duties:
    """The share of worker `worker` among `num_workers`, for samples with `num_cameras` cameras."""

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

        Pairs are dealt out in turn, lane by lane. Where the numbers of cameras and workers have a
        common divisor, each camera would always meet the same workers, and one may cost more than
        another; so the cameras shift by one whenever all workers have been met.
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
        """Return whether the rows of a sample of no lane at a place of the batch are ours."""
        return place % self.num_workers == self.worker

    def extra_cameras(self, place: int) -> list[int]:
        """Return the cameras of a sample of no lane, at a place of the batch, that are ours."""
        first = place * self.num_cameras
        cameras = range(self.num_cameras)
        return [c for c in cameras if (first + c) % self.num_workers == self.worker]
