# SPDX-License-Identifier: Apache-2.0
"""Torch: samplers, datasets, loaders, ranks and state."""

from robostream.loader.dataloader import StreamingDataLoader
from robostream.loader.machine import share_of_cores
from robostream.loader.map_style import MapReader
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
    "compute_sampler_state",
    "load_training_step",
    "resume_sampler",
    "save_training_step",
    "share_of_cores",
]
