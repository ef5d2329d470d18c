# SPDX-License-Identifier: Apache-2.0
"""A conversion that is killed leaves nothing at its destination, and the next run resumes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.errors import WriteError
from robostream.tools import convert, convert_dataset
from tests.fixture_datasets import FIXTURES, copy_of
from tests.tools.convert.killed_conversions import contents
from tests.tools.convert.test_conversion import (
    TOP,
    WRIST,
    add_to_column,
    assert_same_items,
    rows_file,
    video_file,
)
from tests.tools.convert.videos import encode_as_h264

VIDEOS = FIXTURES / "v21_videos"
REPO = Path(__file__).parents[3]


@pytest.mark.long
def test_a_kill_before_every_change_of_a_name_is_survived(tmp_path: Path) -> None:
    """Killed anywhere, there is no copy or a whole one; the next run completes it."""
    command = [sys.executable, "-m", "tests.tools.convert.killed_conversions", str(tmp_path)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = [int(line.split()[-2]) for line in done.stdout.splitlines()]

    assert len(kept) > 20
    assert kept == sorted(kept)
    assert kept[-1] == 3


def test_an_unfinished_copy_is_not_mixed_with_another(tmp_path: Path) -> None:
    """Neither with other sizes nor of another source; the error says what to do."""
    staging = tmp_path / "copy.converting"
    staging.mkdir()
    (staging / "run.json").write_text('{"root": "elsewhere"}')

    with pytest.raises(WriteError, match=r'begun with.*"elsewhere".*Delete this folder'):
        convert_dataset(VIDEOS, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_parts_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    """A file that was being written is begun again."""
    copy = tmp_path / "copy"
    interrupt(VIDEOS, copy)
    part = tmp_path / "copy.converting/dataset/data/chunk-000/file-000.parquet.part"
    part.write_bytes(b"half of a file")
    convert_dataset(VIDEOS, copy)

    assert not list(copy.rglob("*.part"))
    assert_same_items(VIDEOS, copy)


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    """Files that are made stay, and the next run keeps them."""
    copy = tmp_path / "copy"
    interrupt(VIDEOS, copy)
    made = tmp_path / "copy.converting/dataset" / f"videos/{TOP}/chunk-000/file-000.mp4"
    made.unlink()
    (made / "folder").mkdir(parents=True)
    with pytest.raises(WriteError, match=r"file-000\.mp4: cannot be written.*run the same command"):
        convert_dataset(VIDEOS, copy)
    shutil.rmtree(made)

    assert convert_dataset(VIDEOS, copy).kept_files == 2
    assert_same_items(VIDEOS, copy)


def test_a_source_that_changed_meanwhile_is_converted_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that differ now are made again, and files that the copy no longer has are removed."""
    root, copy = copy_of("v21_videos", tmp_path), tmp_path / "copy"
    sizes = {"data_files_size_in_mb": 0.02, "video_files_size_in_mb": 0.05}
    interrupt(root, copy, **sizes)
    add_to_column(rows_file(root, 4), "next.reward", 1)
    for episode in range(5):  # without empty space, more of them fit in a file
        encode_as_h264(video_file(root, WRIST, episode), b_frames=0)
    report = convert_dataset(root, copy, **sizes)
    convert_dataset(root, tmp_path / "afresh", **sizes)

    assert 0 < report.kept_files < report.files
    assert "is made again, because the source has changed" in caplog.text
    assert contents(copy) == contents(tmp_path / "afresh")
    assert_same_items(root, copy)


def interrupt(source: Path, copy: Path, **sizes: float) -> None:
    """Begin a conversion and stop it when all data and video files are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "write_tables", stop)
        with pytest.raises(KeyboardInterrupt):
            convert_dataset(source, copy, **sizes)


def stop(*args: object) -> None:
    raise KeyboardInterrupt
