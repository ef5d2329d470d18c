# SPDX-License-Identifier: Apache-2.0
"""What users import: a short list that changes only on purpose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader, IterableDataset

import robostream
import robostream.plan
from tests.fixture_datasets import FIXTURES

# What a torch DataLoader has by itself.
TORCHS = vars(DataLoader([0])).keys()
SHOWN = {
    "StreamingDataLoader": [
        "close",
        "load_state_dict",
        "set_epoch",
        "state_dict",
        "stats",
        "stream",
    ],
    "StreamingLeRobotDataset": [
        "close",
        "episode_pool_size",
        "episodes",
        "features",
        "fit_out",
        "fps",
        "lanes",
        "layout",
        "load_state_dict",
        "meta",
        "num_episodes",
        "num_frames",
        "plan",
        "rank",
        "repo_id",
        "revision",
        "root",
        "seed",
        "set_epoch",
        "shuffle",
        "state_dict",
        "timing_stats",
        "video_decoder_cache_stats",
    ],
}
PUBLIC = [
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


PLAN = [
    "Batch",
    "Cursor",
    "Cut",
    "EpochPlan",
    "Ints",
    "Lane",
    "Line",
    "PlanState",
    "STATE_VERSION",
    "StepReceipt",
    "advance",
    "capture_state",
    "check_batches",
    "check_state",
    "chunk_positions",
    "cursor_from_batches",
    "default_lanes",
    "digest",
    "dropped_frames",
    "format_receipt",
    "frames_at",
    "head_of_lane",
    "pair_digests",
    "parse_state",
    "permute",
    "places_in_lane",
    "rank_lanes",
    "step_positions",
    "step_receipts",
    "steps_left",
    "stream",
    "unroll_lane",
    "walk",
]


def test_the_public_names_of_the_plan_are_these() -> None:
    """The order is public too: docs/order.md teaches it."""
    assert robostream.plan.__all__ == PLAN


@pytest.mark.parametrize("name", ["StreamingLeRobotDataset", "StreamingDataLoader"])
def test_attributes_that_are_no_api_have_an_underscore(name: str) -> None:
    """What a stream or a loader shows is what users may touch; it changes only on purpose."""
    stream = robostream.StreamingLeRobotDataset(
        "some/name", root=FIXTURES / "images", rank=0, world_size=1
    )
    shown = {
        "StreamingLeRobotDataset": stream,
        "StreamingDataLoader": robostream.StreamingDataLoader(stream, num_workers=0),
    }[name]
    foreign = dir(IterableDataset) if shown is stream else {*dir(DataLoader), *TORCHS}
    own = {n for n in {*dir(shown), *vars(shown)} if not n.startswith("_")} - {*foreign}

    assert sorted(own) == SHOWN[name]


def test_the_public_names_are_these() -> None:
    """Adding or removing one is a decision, so it is written down here too."""
    assert robostream.__all__ == PUBLIC
    assert dir(robostream) == sorted([*PUBLIC, "__version__"])


def test_every_public_name_can_be_imported() -> None:
    """Each name of the list is there, with a docstring."""
    for name in PUBLIC:
        assert getattr(robostream, name).__doc__


def test_the_version_is_the_packages() -> None:
    """pyproject.toml and the module agree."""
    pyproject = (Path(__file__).parents[1] / "pyproject.toml").read_text()

    assert f'version = "{robostream.__version__}"' in pyproject


def test_importing_the_package_does_not_import_torch() -> None:
    """`import robostream` is instant; torch comes with the first class that needs it."""
    code = "import sys, robostream.meta, robostream.plan; assert 'torch' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)
