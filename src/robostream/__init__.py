# SPDX-License-Identifier: Apache-2.0
"""Stream LeRobot datasets (v2.0, v2.1, v3.0) into distributed PyTorch training.

The names below are loaded when they are first used, so that the plan, the metadata and the command
line do not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robostream.lazy import load_on_first_use

if TYPE_CHECKING:
    from robostream.assemble import (
        EpisodeFilter,
        EpisodeSplit,
        EpisodeWeights,
        FrameRanges,
        ImageTransforms,
        Resize,
        Schema,
        Source,
        SourceMap,
        check_no_leakage,
        split_episodes,
    )
    from robostream.dataset import (
        LeRobotDataset,
    )
    from robostream.errors import (
        AccessDeniedError,
        BackwardCompatibilityError,
        CacheError,
        CompatibilityError,
        DataFileError,
        DatasetError,
        ForwardCompatibilityError,
        FrameError,
        FrameTimestampError,
        MetadataError,
        MissingExtraError,
        MissingFileError,
        ModeError,
        RobostreamError,
        SelectionError,
        StateError,
        StorageError,
        UnreachableError,
        VideoFileError,
        WorkerError,
        WriteError,
    )
    from robostream.loader import (
        EpisodeAwareSampler,
        MapReader,
        MixtureDataset,
        Normalizer,
        SamplerState,
        SourceShare,
        StreamingDataLoader,
        StreamingLeRobotDataset,
        TrainingStep,
        compute_sampler_state,
        load_training_step,
        resume_sampler,
        save_training_step,
    )
    from robostream.meta import (
        DatasetInfo,
        EpisodeTable,
        Features,
        LeRobotDatasetMetadata,
        Stats,
        TaskTable,
    )
    from robostream.plan import (
        EpochPlan,
    )
    from robostream.write import (
        DatasetWriter,
        DepthEncoderConfig,
        VideoEncoderConfig,
    )

__version__ = "0.2.0"

__all__ = [
    "AccessDeniedError",
    "BackwardCompatibilityError",
    "CacheError",
    "check_no_leakage",
    "CompatibilityError",
    "compute_sampler_state",
    "DataFileError",
    "DatasetError",
    "DatasetInfo",
    "DatasetWriter",
    "DepthEncoderConfig",
    "EpisodeAwareSampler",
    "EpisodeFilter",
    "EpisodeSplit",
    "EpisodeTable",
    "EpisodeWeights",
    "EpochPlan",
    "Features",
    "ForwardCompatibilityError",
    "FrameError",
    "FrameRanges",
    "FrameTimestampError",
    "ImageTransforms",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "load_training_step",
    "MapReader",
    "MetadataError",
    "MissingExtraError",
    "MissingFileError",
    "MixtureDataset",
    "ModeError",
    "Normalizer",
    "Resize",
    "resume_sampler",
    "RobostreamError",
    "SamplerState",
    "save_training_step",
    "Schema",
    "SelectionError",
    "Source",
    "SourceMap",
    "SourceShare",
    "split_episodes",
    "StateError",
    "Stats",
    "StorageError",
    "StreamingDataLoader",
    "StreamingLeRobotDataset",
    "TaskTable",
    "TrainingStep",
    "UnreachableError",
    "VideoEncoderConfig",
    "VideoFileError",
    "WorkerError",
    "WriteError",
]

__getattr__ = load_on_first_use(
    "robostream",
    {
        "assemble": "EpisodeFilter EpisodeSplit EpisodeWeights FrameRanges ImageTransforms Resize "
        "Schema Source SourceMap check_no_leakage split_episodes",
        "dataset": "LeRobotDataset",
        "errors": " ".join(name for name in __all__ if name.endswith("Error")),
        "loader": "EpisodeAwareSampler MapReader MixtureDataset Normalizer SamplerState "
        "SourceShare StreamingDataLoader StreamingLeRobotDataset TrainingStep "
        "compute_sampler_state load_training_step resume_sampler save_training_step",
        "meta": "DatasetInfo EpisodeTable Features LeRobotDatasetMetadata Stats TaskTable",
        "plan": "EpochPlan",
        "write": "DatasetWriter DepthEncoderConfig VideoEncoderConfig",
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
