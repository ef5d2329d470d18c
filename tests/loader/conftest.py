# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.servers.required import require_gpu


@pytest.fixture(autouse=True)
def no_workers_left() -> Iterator[None]:
    """End workers of torch's and torchdata's loaders that the test leaves behind.

    A loader whose first batch is refused waits 5 s for each of them when it is collected. Torch's
    handler of SIGCHLD reports a killed worker once, as RuntimeError: here, not in the next test.
    """
    yield
    for child in multiprocessing.active_children():
        with suppress(RuntimeError):
            child.terminate()
            child.join()


@pytest.fixture(params=[None, "cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str | None:
    """Batches as they are built, and uploaded by a thread."""
    if request.param == "cuda":
        require_gpu()
    name: str | None = request.param
    return name
