# SPDX-License-Identifier: Apache-2.0
"""Torch: samplers, datasets, loaders, ranks and state.

ranks.py          which process of the training run this is
machine.py        which cores, how much memory and how many files this process may use
options.py        checks and defaults of what a user asks for
by_value.py       sending to worker processes what only a script or notebook defines
streaming.py      StreamingLeRobotDataset: an ordered, resumable, distributed stream
bad_episodes.py   episodes that cannot be read: raise, or set aside
direct.py         iterating over the stream itself, here or in a plain torch DataLoader
samples.py        single samples, for direct iteration and plain torch loaders
agreement.py      which epoch the workers of a plain torch DataLoader are on
plain.py          how far a plain torch DataLoader has come

dataloader.py     StreamingDataLoader: whole batches, and where the run stands
running_pool.py       the running workers, their memory, and how batches become tensors
position.py           where a consumer stands, and where its next iterator begins
worker_setup.py       what the worker processes are given: layout, budgets, memory
budgets.py        how much memory decoded pictures get
frame_file.py     decoded pictures in a file on a fast disk, for all ranks of a machine
batches.py        an iterator over the batches of one epoch
memory_figures.py what memory a loader takes, for benchmarks
stats.py              what was delivered, how fast, and how long was waited for it

map_style.py      MapReader: samples by number, for LeRobotDataset
kept_frames.py    which frames a sampler visits
sampler.py        EpisodeAwareSampler: their order, and where it stands
training_step.py  training_step.json of a checkpoint
"""

from robostream.loader.by_value import for_pickle
from robostream.loader.dataloader import StreamingDataLoader
from robostream.loader.machine import local_ranks, share_of_cores, usable_memory
from robostream.loader.map_style import MapReader
from robostream.loader.memory_figures import batch_bytes, frame_budget
from robostream.loader.options import choose_depth
from robostream.loader.sampler import EpisodeAwareSampler, SamplerState, compute_sampler_state
from robostream.loader.streaming import StreamingLeRobotDataset
from robostream.loader.training_step import (
    TrainingStep,
    load_training_step,
    resume_sampler,
    save_training_step,
)

__all__ = [
    "EpisodeAwareSampler",
    "MapReader",
    "SamplerState",
    "StreamingDataLoader",
    "StreamingLeRobotDataset",
    "TrainingStep",
    "batch_bytes",
    "choose_depth",
    "compute_sampler_state",
    "for_pickle",
    "frame_budget",
    "load_training_step",
    "local_ranks",
    "resume_sampler",
    "save_training_step",
    "share_of_cores",
    "usable_memory",
]
