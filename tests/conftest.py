# SPDX-License-Identifier: Apache-2.0
"""What all tests share: patience, a cache of their own, servers that start when first asked."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.servers.hub import Hub
    from tests.servers.s3 import S3Endpoint
    from tests.slurm.cluster import Cluster

# Workers forked from a server that has imported what they need start as fast as forked ones, and
# cannot inherit a lock that a thread of the test process happened to hold.
multiprocessing.set_forkserver_preload(["robostream.loader", "tests.loader.streams"])

# One OpenMP thread a process, before torch is imported: a pool would fight the decoders for the
# cores, and a run in this process would round otherwise than one in a process that is started.
os.environ["OMP_NUM_THREADS"] = "1"
# SVT-AV1 reads this once a process, whichever test encodes first.
os.environ.setdefault("SVT_LOG", "1")
# Some virtual machines report AMX and do not execute it; torch's bf16 layers then end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# Properties are checked without a deadline: a busy machine breaks no rule. `make test` checks each
# with fewer examples (--hypothesis-profile=short), `make test-all` with all of them.
settings.register_profile("full", deadline=None)
settings.register_profile("short", deadline=None, max_examples=20)
settings.load_profile("full")

# What is kept between runs of the library is kept apart from the user's own, and thrown away.
_CACHE = tempfile.TemporaryDirectory(prefix="robostream-tests-")
os.environ["ROBOSTREAM_CACHE"] = _CACHE.name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto` is one more than there are cores: tests often wait, for servers and processes."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests, so that none is left to be waited for when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty Hugging Face Hub."""
    from tests.servers.hub import serve_hub

    with serve_hub() as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Endpoint]:
    """An S3 server that all tests of this process share; use buckets of your own."""
    from tests.servers.s3 import serve_s3

    with serve_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm cluster of two nodes that all tests of this process share."""
    from tests.servers.required import lacking
    from tests.slurm.cluster import serve_cluster, why_not

    reason = why_not()
    if reason is not None:
        lacking("SLURM", reason)
    with serve_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def browser() -> None:
    """Chromium, or a reason why the test is skipped."""
    from tests.bench.chromium import why_not
    from tests.servers.required import lacking

    reason = why_not()
    if reason is not None:
        lacking("CHROMIUM", reason)
