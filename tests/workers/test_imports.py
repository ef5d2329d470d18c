# SPDX-License-Identifier: Apache-2.0
"""A worker of a plain local dataset loads only what it needs, so that it starts fast."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from tests.fixture_datasets import FIXTURES

# Packages and modules, each with all that it contains.
NOT_NEEDED = [
    # Large libraries: each takes a twentieth of a worker's start or more.
    "torch",
    "pandas",
    "numpy.ma",
    "pyarrow.compute",
    "PIL",
    "tqdm",
    "huggingface_hub",
    "fsspec",
    # For files on servers.
    "http",
    "urllib.request",
    "email",
    "robostream.storage.connections",
    "robostream.storage.http_store",
    "robostream.storage.hub",
    "robostream.storage.cloud_stores",
    "robostream.storage.remote_source",
    "robostream.storage.cached_file",
    # For mixtures, GPUs and datasets of v2.0 and v2.1.
    "robostream.meta.v2",
    "robostream.plan.mixture",
    "robostream.assemble.source",
    "robostream.assemble.schema",
    "robostream.assemble.derive",
    "robostream.assemble.placement",
    "robostream.device.gpu_decoding",
    "robostream.device.gpu",
    "robostream.device.upload",
    # For the consumer and the tools.
    "argparse",
    "robostream.progress",
    "robostream.plan.state",
    "robostream.assemble.cameras",
    "robostream.assemble.stats",
    "robostream.assemble.split",
    "robostream.loader",
    "robostream.write",
    "robostream.dataset",
    "robostream.tools",
    "robostream.bench",
    "robostream.cli",
]


@pytest.mark.parametrize("name", [name for name in NOT_NEEDED if name.startswith("robostream.")])
def test_the_modules_exist(name: str) -> None:
    """So that none of them is loaded unnoticed because it was renamed."""
    assert find_spec(name) is not None


def test_a_worker_loads_only_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No library or module of remote files, GPUs, mixtures, statistics or tools, in an epoch."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # lists imports on standard error
    stream = StreamingLeRobotDataset("some/name", root=FIXTURES / "h264_bframes")
    loader = StreamingDataLoader(stream, 8, num_workers=1)
    assert sum(len(batch["index"]) for batch in loader) == len(stream)
    loader.close()
    lines = [line for line in capfd.readouterr().err.splitlines() if "import time:" in line]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    unwanted = {
        name for name in loaded if f"{name}.".startswith(tuple(f"{n}." for n in NOT_NEEDED))
    }

    assert "robostream.workers.worker_main" in loaded
    assert unwanted == set()
