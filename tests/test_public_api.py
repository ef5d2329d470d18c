# SPDX-License-Identifier: Apache-2.0
"""What users import: a short list that changes only on purpose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import robostream

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
