# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the storage tests: no known servers, and a small dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from robostream import config
from robostream.tools import SynthSpec, make_dataset
from tests.servers.ports import forget_servers


@pytest.fixture(autouse=True)
def unknown_servers(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Forget every server before and after the test: ports are used again."""
    home = tmp_path_factory.mktemp("home")
    forget_servers(home, monkeypatch)
    yield
    forget_servers(home, monkeypatch)


@pytest.fixture(scope="session")
def small_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One camera, 8 episodes in files of several blocks each."""
    config.quiet_encoders()
    root = tmp_path_factory.mktemp("cached") / "cups"
    spec = SynthSpec(
        episodes=8, min_frames=40, max_frames=60, cameras=1, width=96, height=64,
        codec="h264", gop=2, crf=6, video_file_mb=0.6, data_file_mb=0.02,
    )  # fmt: skip
    make_dataset(root, spec)
    return root
