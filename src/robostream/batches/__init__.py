# SPDX-License-Identifier: Apache-2.0
"""From an epoch to batches: which worker builds what, what is decoded when. Imports no torch.

prefetch.py      bytes of coming episodes, fetched before they are due
bringer.py       what the threads that fetch them have open
lane_work.py     a lane as a conveyor: which pictures are decoded ahead of delivery
reel.py          one camera's pictures of an episode that one lane delivers, and when
frame_shelf.py   decoded pictures kept from decoding to their last delivery
shared_frames.py decoded pictures of a whole selection, kept once for all processes
projector.py     decodes the pictures of reels and draws them into batches
projectors.py    the projectors of one process, for the CPU's cameras and the GPU's
augment.py       the user's image transform, and the random numbers it draws
worker.py        what one process holds open
delivery.py      the parts of one iterator's batches that one process builds
"""

from robostream.batches.augment import kept_generators, transform_pictures
from robostream.batches.builder import BadSampleError, BatchBuilder, Texts
from robostream.batches.context import WorkerBudgets, WorkerContext
from robostream.batches.frame_cache import FrameCache, PrivateFrameCache
from robostream.batches.shared_frame_cache import SharedFrameCache, SharedFrameLayout

__all__ = [
    "BadSampleError",
    "WorkerBudgets",
    "BatchBuilder",
    "FrameCache",
    "PrivateFrameCache",
    "SharedFrameCache",
    "SharedFrameLayout",
    "Texts",
    "WorkerContext",
    "kept_generators",
    "transform_pictures",
]
