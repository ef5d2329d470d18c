# SPDX-License-Identifier: Apache-2.0
"""The sound dataset that tests copy and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.doctor.broken import make_sound


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound dataset; do not change it."""
    return make_sound(tmp_path_factory.mktemp("doctor") / "sound")
