# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.decode.videos import encode
from tests.parameters import long_except

REPO = Path(__file__).parents[2]
# Decoders and their pictures, scratch memory, indices: what an engine takes beside its budget.
BESIDE_BYTES = 48 << 20
FRAME_BYTES = 320 * 240 * 3 // 2
SIZES = [(320, 240), (320, 240), (256, 256), (640, 480)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Videos of three sizes."""
    folder = tmp_path_factory.mktemp("memory")
    return [
        str(encode(folder / f"{n}.mp4", "libx264", {"g": "6"}, size=size, seed=n))
        for n, size in enumerate(SIZES)
    ]


@pytest.mark.parametrize("order", long_except(["random", "in order"], "in order"))
@pytest.mark.parametrize("frames_kept", long_except([0, 100], 100))
def test_memory_stays_within_the_budget(files: list[str], order: str, frames_kept: int) -> None:
    """Over ten epochs a process grows by its budget and a constant, and not from epoch to epoch."""
    budget = frames_kept * FRAME_BYTES
    command = [sys.executable, "-m", "tests.decode.memory_program", str(budget), order]
    done = subprocess.run(
        [*command, *files], cwd=REPO, capture_output=True, text=True, timeout=500, check=True
    )
    resident = json.loads(done.stdout)

    assert max(resident) <= budget + BESIDE_BYTES
    assert resident[-1] <= resident[1] + (4 << 20)
