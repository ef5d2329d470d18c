# SPDX-License-Identifier: Apache-2.0
"""`robostream convert` from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream.cli.main import main
from tests.fixture_datasets import FIXTURES, copy_of

VIDEOS = str(FIXTURES / "v21_videos")


def test_the_report_describes_the_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json, it has files before and after, the checks, and both streaming speeds."""
    code = main(["convert", VIDEOS, str(tmp_path / "copy"), "--jobs", "1"])
    printed = capsys.readouterr().out

    assert code == 0
    assert "copy: v2.1 as v3.0, 5 episodes, 143 frames\n  files: 15 -> 3\n" in printed
    assert "checked: every row and every video packet equals its original" in printed
    speed = re.search(r"streaming: (\d+) samples/s before, (\d+) after \(([\d.]+) times\)", printed)
    assert speed is not None
    before, after, ratio = map(float, speed.groups())
    assert ratio == pytest.approx(after / before, abs=0.02)


def test_json_has_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, stdout has nothing else; --no-speed leaves the measurement out."""
    options = ["--jobs", "1", "--video-files-size-in-mb", "1", "--no-speed", "--json"]
    assert main(["convert", VIDEOS, str(tmp_path / "copy"), *options]) == 0
    report = json.loads(capsys.readouterr().out)

    assert report["path"] == str(tmp_path / "copy")
    assert (report["source_files"], report["files"], report["speed"]) == (15, 3, None)


def test_frames_that_cannot_be_decoded_cost_the_speed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The copy is made and reported: its rows are those of the source."""
    root = copy_of("v21_images", tmp_path)
    for path in root.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        at = table.column_names.index("observation.images.top")
        images = [{"bytes": b"no image", "path": "frame.png"}] * len(table)
        column = pa.array(images, table.schema.field(at).type)
        pq.write_table(table.set_column(at, table.schema.field(at), column), path)

    assert main(["convert", str(root), str(tmp_path / "copy"), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "copy: v2.1 as v3.0, 3 episodes" in printed
    assert "streaming:" not in printed
    assert "the streaming speed cannot be measured" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ([str(FIXTURES / "images"), "COPY"], 1, "needs no conversion"),
        ([str(FIXTURES), "COPY"], 1, "no LeRobot dataset"),
        (["lerobot/pusht", "COPY"], 1, "hf download lerobot/pusht"),
        ([VIDEOS, f"{VIDEOS}/copy"], 1, "inside it"),
        ([VIDEOS, VIDEOS], 1, "exists"),
        ([VIDEOS, "COPY", "--jobs", "0"], 2, "whole number above 0"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong usage exits with 2, unsuitable folders with 1; nothing is written."""
    given = [str(tmp_path / "copy") if text == "COPY" else text for text in arguments]
    try:
        returned = main(["convert", *given])
    except SystemExit as stopped:  # argparse's own complaint
        returned = int(stopped.code or 0)

    assert returned == code
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
