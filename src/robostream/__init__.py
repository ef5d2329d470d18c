# SPDX-License-Identifier: Apache-2.0
"""Stream LeRobot v3.0 datasets into distributed PyTorch training.

The names below are loaded when they are first used, so that the plan, the metadata and the command
line do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robostream.dataset import LeRobotDataset
    from robostream.errors import RobostreamError
    from robostream.loader import (
        EpisodeAwareSampler,
        StreamingDataLoader,
        StreamingLeRobotDataset,
        compute_sampler_state,
        load_training_step,
        resume_sampler,
        save_training_step,
    )
    from robostream.meta import LeRobotDatasetMetadata
    from robostream.write import DepthEncoderConfig, VideoEncoderConfig

__version__ = "0.1.0"

__all__ = [
    "DepthEncoderConfig",
    "EpisodeAwareSampler",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "RobostreamError",
    "StreamingDataLoader",
    "StreamingLeRobotDataset",
    "VideoEncoderConfig",
    "compute_sampler_state",
    "load_training_step",
    "resume_sampler",
    "save_training_step",
]

_HOMES = {
    "DepthEncoderConfig": "write",
    "LeRobotDataset": "dataset",
    "LeRobotDatasetMetadata": "meta",
    "RobostreamError": "errors",
    "VideoEncoderConfig": "write",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'robostream' has no attribute {name!r}")
    module = importlib.import_module(f"robostream.{_HOMES.get(name, 'loader')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
