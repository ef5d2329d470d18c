# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.servers.required import require_gpu


@pytest.fixture(params=[None, "cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str | None:
    """Batches as they are built, and uploaded by a thread."""
    if request.param == "cuda":
        require_gpu()
    name: str | None = request.param
    return name
