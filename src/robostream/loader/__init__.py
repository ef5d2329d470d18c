# SPDX-License-Identifier: Apache-2.0
"""Torch: samplers, datasets, loaders, ranks and state.

resources.py       cores, memory and open files, and how workers share them
position.py        which process of the run this is; where streams, loaders and their copies stand
cursor.py          StreamCursor: what a stream delivers, where it stands, which episodes are bad
stream.py          FrameStream: what all streams have in common, and their single samples
streaming.py       StreamingLeRobotDataset: an ordered, resumable, distributed stream
mixture_content.py the datasets of a mixture, its statistics, and Normalizer, which applies them
mixture.py         MixtureDataset: several datasets in one stream

stats.py           counts, rates and waiting times; what limits a run, and what would help
running_pool.py    a loader's workers, their memory or frame file, and how batches become tensors
batch_iterator.py  an iterator over the batches of one epoch; those of the next, begun early
dataloader.py      StreamingDataLoader: whole batches, and where the run stands

map_style.py       MapReader: samples by number, for LeRobotDataset
sampler.py         EpisodeAwareSampler: which frames, in which order, from which position
training_step.py   training_step.json of a checkpoint

"""

from robostream.loader.dataloader import StreamingDataLoader, batch_bytes, frame_budget
from robostream.loader.map_style import MapReader
from robostream.loader.mixture import MixtureDataset, SourceShare
from robostream.loader.mixture_content import Normalizer
from robostream.loader.position import for_pickle
from robostream.loader.resources import choose_depth, local_ranks, share_of_cores, usable_memory
from robostream.loader.sampler import EpisodeAwareSampler, SamplerState, compute_sampler_state
from robostream.loader.streaming import StreamingLeRobotDataset
from robostream.loader.training_step import (
    TrainingStep,
    load_training_step,
    resume_sampler,
    save_training_step,
)
