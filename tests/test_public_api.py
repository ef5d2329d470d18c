# SPDX-License-Identifier: Apache-2.0
"""What users import: a short list that changes only on purpose."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset

import robostream
import robostream.plan
from tests.fixture_datasets import FIXTURES

# The attributes of objects that users may touch; all others have an underscore. These are named as
# in LeRobot, of version 0.6.1 or its streaming branch, because users' code relies on them:
AS_IN_LEROBOT = {
    "EpisodeAwareSampler": [
        "indices",
        "load_state_dict",
        "seed",
        "set_epoch",
        "shuffle",
        "state_dict",
    ],
    "LeRobotDataset": [
        "absolute_to_relative_idx",
        "add_frame",
        "clear_episode_buffer",
        "clear_image_transforms",
        "create",
        "delta_timestamps",
        "depth_output_unit",
        "episodes",
        "features",
        "finalize",
        "fps",
        "get_raw_item",
        "has_pending_frames",
        "hf_dataset",
        "image_transforms",
        "meta",
        "num_episodes",
        "num_frames",
        "push_to_hub",
        "reader",
        "repo_id",
        "resume",
        "revision",
        "root",
        "save_episode",
        "select_columns",
        "set_image_transforms",
        "tolerance_s",
        "writer",
    ],
    "LeRobotDatasetMetadata": [
        "camera_keys",
        "chunks_size",
        "data_files_size_in_mb",
        "data_path",
        "depth_keys",
        "ensure_readable",
        "episodes",
        "features",
        "filter_episodes",
        "fps",
        "get_chunk_settings",
        "get_data_file_path",
        "get_task_index",
        "get_video_file_path",
        "has_language_columns",
        "image_keys",
        "info",
        "names",
        "repo_id",
        "rescale_depth_stats",
        "revision",
        "robot_type",
        "root",
        "shapes",
        "stats",
        "tasks",
        "tools",
        "total_episodes",
        "total_frames",
        "total_tasks",
        "update_chunk_settings",
        "url_root",
        "video_files_size_in_mb",
        "video_keys",
        "video_path",
    ],
    "StreamingLeRobotDataset": [
        "delta_timestamps",
        "depth_output_unit",
        "episode_pool_size",
        "episodes",
        "fps",
        "image_transforms",
        "load_state_dict",
        "meta",
        "num_episodes",
        "num_frames",
        "num_shards",
        "rank",
        "repo_id",
        "revision",
        "root",
        "seed",
        "shuffle",
        "timing_stats",
        "tolerance_s",
        "video_decode_device",
        "video_decoder_cache_stats",
        "world_size",
    ],
}
# These are robostream's own:
OWN = {
    "LeRobotDataset": ["compute_stats"],
    "LeRobotDatasetMetadata": ["fingerprint"],
    "MixtureDataset": [
        "close",
        "dataset_stats",
        "episode_pool_size",
        "exact_stats",
        "from_file",
        "groups",
        "lanes",
        "load_state_dict",
        "maps",
        "metas",
        "num_frames",
        "num_shards",
        "plan",
        "rank",
        "repo_id",
        "schema",
        "seed",
        "set_epoch",
        "shares",
        "shuffle",
        "state_dict",
        "stats",
        "tasks",
        "timing_stats",
        "video_decode_device",
        "video_decoder_cache_stats",
        "world_size",
    ],
    "StreamingDataLoader": [
        "close",
        "limited_by",
        "load_state_dict",
        "set_epoch",
        "state_dict",
        "stats",
        "stream",
    ],
    "StreamingLeRobotDataset": [
        "close",
        "features",
        "lanes",
        "plan",
        "set_epoch",
        "state_dict",
    ],
}
TYPES_OF_FUNCTIONS = ("EpisodeFilter", "EpisodeWeights", "FrameRanges", "ImageTransforms")
PUBLIC = [
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


PLAN = [
    "Batch",
    "Cursor",
    "Cut",
    "EpochPlan",
    "PlanState",
    "STATE_VERSION",
    "StepReceipt",
    "advance",
    "capture_state",
    "check_state",
    "cursor_from_batches",
    "default_lanes",
    "digest",
    "format_receipt",
    "parse_state",
    "step_positions",
    "step_receipts",
    "steps_left",
    "walk",
]


def test_the_public_names_of_the_plan_are_these() -> None:
    """The order is public too: docs/order.md teaches it."""
    assert robostream.plan.__all__ == PLAN


@pytest.fixture(scope="module")
def shown() -> dict[str, set[str]]:
    """By class, the names without an underscore that its objects have, those of torch left out."""
    dataset = robostream.LeRobotDataset("some/name", root=FIXTURES / "images")
    stream = robostream.StreamingLeRobotDataset(
        "some/name", root=FIXTURES / "images", rank=0, world_size=1
    )
    objects = [
        (dataset, Dataset),
        (dataset.meta, object),
        (robostream.EpisodeAwareSampler([0], [5]), object),
        (stream, IterableDataset),
        (robostream.MixtureDataset([str(FIXTURES / "images")]), IterableDataset),
        (robostream.StreamingDataLoader(stream, num_workers=0), DataLoader([0])),
    ]
    return {
        type(one).__name__: {n for n in dir(one) if not n.startswith("_")} - {*dir(of_torch)}
        for one, of_torch in objects
    }


@pytest.mark.parametrize("name", OWN | AS_IN_LEROBOT)
def test_attributes_that_are_no_api_have_an_underscore(
    name: str, shown: dict[str, set[str]]
) -> None:
    """What an object shows is what users may touch; it changes only on purpose."""
    pinned = [*AS_IN_LEROBOT.get(name, []), *OWN.get(name, [])]

    assert sorted(shown[name]) == sorted(pinned)


def test_the_public_names_are_these() -> None:
    """Adding or removing one is a decision, so it is written down here too."""
    assert robostream.__all__ == PUBLIC
    assert dir(robostream) == sorted([*PUBLIC, "__version__"])


def test_every_public_name_can_be_imported() -> None:
    """Each name of the list is there; classes and functions have a docstring."""
    for name in PUBLIC:
        value = getattr(robostream, name)
        assert value.__doc__ or name in TYPES_OF_FUNCTIONS


def test_the_version_is_the_packages() -> None:
    """The module is the only place that holds it."""
    assert version("robostream") == robostream.__version__


def test_importing_the_package_does_not_import_torch() -> None:
    """`import robostream` is instant; torch comes with the first class that needs it.

    Recording and the tools do without it, so that the processes they start are quick to begin.
    """
    stages = ", ".join(f"robostream.{name}" for name in ("meta", "plan", "write", "tools"))
    code = f"import sys, {stages}; assert 'torch' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_objects_say_what_they_are_and_where_they_stand() -> None:
    """What a notebook shows of each: the data, the order, and the place in it."""
    dataset = robostream.LeRobotDataset("some/name", root=FIXTURES / "images")
    stream = robostream.StreamingLeRobotDataset(
        "some/name", root=FIXTURES / "images", seed=7, lanes=4, rank=1, world_size=2
    )
    loader = robostream.StreamingDataLoader(stream, 8, num_workers=0)
    next(iter(loader))
    sampler = robostream.EpisodeAwareSampler([0, 5], [5, 9], shuffle=True, seed=3)
    next(iter(sampler))
    cameras, frames = dataset.meta.camera_keys, dataset.num_frames
    holds = f"episodes={dataset.num_episodes}, frames={frames}"

    assert repr(dataset) == (
        f"LeRobotDataset('some/name', reading, {holds}, fps={dataset.fps}, "
        f"features={list(dataset.features)})"
    )
    assert repr(stream) == (
        f"StreamingLeRobotDataset('some/name', {holds}, cameras={cameras}, episode_pool_size=64, "
        "seed=7, lanes=4, rank=1 of 2, epoch=0, position=0)"
    )
    assert repr(loader) == (
        f"StreamingDataLoader('some/name', batch_size=8, batches={len(loader)}, num_workers=0, "
        f"epoch=0, position=16 of {frames})"
    )
    assert repr(sampler) == (
        "EpisodeAwareSampler(episodes=2, frames=9, shuffle=True, seed=3, epoch=0, position=1)"
    )


def test_a_stream_says_what_it_was_opened_with() -> None:
    """Code written for LeRobot's stream reads these; they cannot be changed behind its back."""
    windows = {"action": [0.0]}
    stream = robostream.StreamingLeRobotDataset(
        "some/name",
        root=FIXTURES / "images",
        delta_timestamps=windows,
        tolerance_s=0.001,
        image_transforms=abs,
        depth_output_unit="m",
        lanes=6,
        rank=1,
        world_size=2,
    )

    assert (stream.delta_timestamps, stream.tolerance_s) == (windows, 0.001)
    assert (stream.image_transforms, stream.depth_output_unit) == (abs, "m")
    assert (stream.rank, stream.world_size, stream.num_shards) == (1, 2, 3)
    with pytest.raises(AttributeError):
        stream.image_transforms = None  # type: ignore[misc]
