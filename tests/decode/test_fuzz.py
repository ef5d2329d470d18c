# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.decode.conftest import SampleVideo, local_engine

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]
VideoMaker = Callable[[str], SampleVideo]


@pytest.mark.parametrize(
    "kind", ["av1_g2", "h264_bframes", "hevc_closed", "moov_first", "trimmed_start", "fragmented"]
)
def test_damaged_files_are_refused_or_right(clip: VideoMaker, tmp_path: Path, kind: str) -> None:
    """No damage crashes or hangs; a cut file is refused and named; damage stays in its GOP."""
    command = [sys.executable, "-m", "tests.decode.fuzz_program", str(clip(kind).path)]
    done = subprocess.run(
        [*command, str(tmp_path), "75"], cwd=REPO, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(outcomes) == 75
    for outcome in outcomes:
        assert outcome["wrong_elsewhere"] == 0, outcome
        # Of a fragmented file, the fragments before the cut are whole.
        if outcome["kind"] == "cut":
            allowed = {"refused", "right"} if kind == "fragmented" else {"refused"}
            assert set(outcome["counts"]) <= allowed, outcome
    assert any(outcome["counts"].get("right") for outcome in outcomes)


def test_a_file_replaced_while_open_stays_the_one_that_was_opened(
    clip: VideoMaker, tmp_path: Path
) -> None:
    """A new file renamed over an open one is not mixed with it; a new engine sees the new one."""
    old, new = clip("h264_bframes"), clip("h264_g250")
    path = tmp_path / "video.mp4"
    shutil.copy(old.path, path)
    with local_engine() as engine:
        engine.files.get(str(path))
        shutil.copy(new.path, tmp_path / "aside.mp4")
        (tmp_path / "aside.mp4").rename(path)
        out = old.slots(1)
        engine.read(str(path), [30], out)

        np.testing.assert_array_equal(out[0], old.pictures[30])
    with local_engine() as engine:
        engine.read(str(path), [200], out)

        np.testing.assert_array_equal(out[0], new.pictures[200])


def test_a_saved_index_is_dropped_when_the_file_changes(clip: VideoMaker, tmp_path: Path) -> None:
    """A file of another size under the same name gets an index of its own."""
    path, folder = tmp_path / "video.mp4", tmp_path / "indices"
    for kind, frame in (("h264_bframes", 30), ("av1_g2", 40)):
        video = clip(kind)
        shutil.copy(video.path, path)
        with local_engine(index_folder=folder) as engine:
            out = video.slots(1)
            engine.read(str(path), [frame], out)

            np.testing.assert_array_equal(out[0], video.pictures[frame])
