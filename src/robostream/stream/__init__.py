# SPDX-License-Identifier: Apache-2.0
"""From an epoch to batches: which worker builds what, what is decoded when. Imports no torch.

duties.py        which lanes, cameras and rows each worker owns
agenda.py        which frame of which lane goes to which place of each batch
prefetch.py      bytes of coming episodes, fetched before they are due
bringer.py       what the threads that fetch them have open
next_use.py      when parts of episodes are read, for a cache that cannot hold them all
pace.py          up to which frame of a lane decoding should have come
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

from robostream.stream.agenda import StepShare, Tour, walk_agenda
from robostream.stream.augment import kept_generators, transform_pictures
from robostream.stream.delivery import BadSampleError, Delivery, Texts
from robostream.stream.duties import Duties
from robostream.stream.frame_shelf import FrameShelf, PrivateShelf
from robostream.stream.pace import PORTION_FRAMES, Pace, is_portion_due, margin_frames
from robostream.stream.shared_frames import SharedFrames, SharedShape
from robostream.stream.worker import Budgets, Worker

__all__ = [
    "BadSampleError",
    "Budgets",
    "Delivery",
    "Duties",
    "FrameShelf",
    "PORTION_FRAMES",
    "Pace",
    "PrivateShelf",
    "SharedFrames",
    "SharedShape",
    "StepShare",
    "Texts",
    "Tour",
    "Worker",
    "is_portion_due",
    "kept_generators",
    "margin_frames",
    "transform_pictures",
    "walk_agenda",
]
