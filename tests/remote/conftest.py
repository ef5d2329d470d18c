# SPDX-License-Identifier: Apache-2.0
"""A dataset of many small files, and the epoch that local disk delivers of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from robostream import config
from robostream.tools import SynthSpec, make_dataset
from tests.remote.places import Served, serve
from tests.remote.program import Report, run_program
from tests.servers.s3 import S3Endpoint

Serve = Callable[[str], Served]
BATCH_SIZE = 8


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cameras, 24 episodes, a file of each camera for about two of them."""
    config.quiet_encoders()
    root = tmp_path_factory.mktemp("remote") / "cups"
    spec = SynthSpec(
        episodes=24,
        min_frames=12,
        max_frames=24,
        cameras=2,
        width=64,
        height=48,
        codec="h264",
        gop=6,
        crf=12,
        video_file_mb=0.08,
        data_file_mb=0.01,
    )
    make_dataset(root, spec)
    return root


@pytest.fixture(scope="session")
def local(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a program that reads two epochs from local disk."""
    stream = {"repo_id": "lab/cups", "root": str(dataset)}
    return stream_epochs(tmp_path_factory.mktemp("local"), stream, {}, epochs=2)


@pytest.fixture
def served(dataset: Path, tmp_path: Path, s3: S3Endpoint) -> Iterator[Serve]:
    """Serves the dataset from a place, until the test ends."""
    with contextlib.ExitStack() as stack:

        def start(place: str) -> Served:
            work = tmp_path / f"server-{place}"
            work.mkdir()
            return stack.enter_context(serve(place, dataset, work, s3))

        yield start


def stream_epochs(
    home: Path, stream: dict[str, Any], environment: dict[str, str], **options: Any
) -> Report:
    """Run a program with one worker process over a stream of one rank."""
    settings = {"rank": 0, "world_size": 1, "return_uint8": True} | stream
    loader = {"batch_size": BATCH_SIZE, "num_workers": 1} | options
    return run_program(home, settings, environment, **loader)
