# SPDX-License-Identifier: Apache-2.0
"""Epochs into batches: who builds which part, what is decoded when. Imports no torch.

duties.py        who does what: lanes, cameras and rows shared out to workers
agenda.py        which frame of which lane goes where in each batch
lane_work.py     a lane as a conveyor: which pictures are decoded ahead of delivery
reel.py          one camera's pictures of an episode, as far as one lane needs them
frame_store.py   decoded pictures kept from decoding to their last delivery
shared_frames.py decoded pictures of a whole selection, kept once for all processes
projector.py     decodes the pictures of reels and draws them into batches
augment.py       the user's image transform, with random draws of its own
worker.py        what one process holds open
delivery.py      one iterator's batches, as far as one process builds them
"""

from robostream.stream.agenda import StepShare, Tour, walk_agenda
from robostream.stream.augment import transform_pictures
from robostream.stream.delivery import BadSampleError, Delivery, Texts
from robostream.stream.duties import Duties
from robostream.stream.frame_store import FrameStore, PrivateStore
from robostream.stream.lane_work import STEP_FRAMES, margin_frames
from robostream.stream.shared_frames import SharedFrames, SharedShape
from robostream.stream.worker import Budgets, Worker

__all__ = [
    "BadSampleError",
    "Budgets",
    "Delivery",
    "Duties",
    "FrameStore",
    "PrivateStore",
    "STEP_FRAMES",
    "SharedFrames",
    "SharedShape",
    "StepShare",
    "Texts",
    "Tour",
    "Worker",
    "margin_frames",
    "transform_pictures",
    "walk_agenda",
]
