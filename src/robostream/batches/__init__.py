# SPDX-License-Identifier: Apache-2.0
"""From an epoch to batches: which worker builds what, what is decoded when. Imports no torch.

prefetch.py      bytes of coming episodes, fetched before they are due
part_fetcher.py       what the prefetching threads have open
lane_lookahead.py     which frames of a lane are decoded ahead of delivery
clip.py               one camera's frames of an episode that one lane delivers, and when
frame_cache.py        decoded frames kept from decoding to their last delivery
shared_frame_cache.py decoded frames of a whole selection, kept once for all processes
clip_decoder.py       decodes the frames of clips and draws them into batches
clip_decoders.py      the decoders of one process, for the CPU's cameras and the GPU's
augment.py       the user's image transform, and the random numbers it draws
context.py            what one process holds open
builder.py            one process's parts of the batches of one iterator
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
