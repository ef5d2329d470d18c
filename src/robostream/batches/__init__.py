# SPDX-License-Identifier: Apache-2.0
"""From an epoch to batches: which worker builds what, what is decoded when. Imports no torch.

prefetch.py        bytes of coming episodes, fetched before they are due
lane_lookahead.py  the clips of a lane, and which of their frames are decoded ahead of delivery
source_reader.py   the rows, videos and bytes fetched ahead of each dataset
context.py         WorkerContext: what one process holds open: readers, decoders, frames
sample_writer.py   samples written into batches, and the user's image transform
builder.py         BatchBuilder: one process's parts of the batches of one iterator
"""

from robostream.batches.builder import BadSampleError, BatchBuilder
from robostream.batches.context import WorkerBudgets, WorkerContext
from robostream.batches.sample_writer import (
    Texts,
    preserve_generators,
    probe_layout,
    transform_images,
    try_transforms,
)
