# SPDX-License-Identifier: Apache-2.0
"""A re-encoded copy of a dataset has the same items."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import av
import pyarrow.parquet as pq
import pytest

from robostream.config import RECODE_CRF
from robostream.errors import MetadataError, VideoFileError, WriteError
from robostream.loader import StreamingLeRobotDataset
from robostream.tools import RecodeReport, RecodeSpec, recode_dataset, staging
from tests.decode.videos import encode
from tests.fixture_datasets import FIXTURES, copy_of, edit_info
from tests.parameters import long_except
from tests.tools.recode.copies import assert_same_items, contents_of

MULTIFILE = FIXTURES / "av1_multifile"
TOP = "observation.images.top"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
FIRST = f"videos/{TOP}/chunk-000/file-000.mp4"
NAMES = {"h264": "h264", "hevc": "hevc", "libsvtav1": "av1"}


def recode(root: Path, copy: Path, codec: str = "h264", **options: Any) -> RecodeReport:
    return recode_dataset(root, copy, RecodeSpec(codec, **options), jobs=2)


def info_of(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "meta/info.json").read_text())
    return content


@pytest.mark.parametrize("codec", long_except(RECODE_CRF, "libsvtav1"))
def test_every_item_is_the_same(codec: str, tmp_path: Path) -> None:
    """Rows are equal, images similar, with several files per camera; no other files are left."""
    report = recode(MULTIFILE, tmp_path / "copy", codec)

    assert_same_items(MULTIFILE, tmp_path / "copy", at_least_db=32 if codec == "libsvtav1" else 38)
    assert (report.video_files, report.frames, report.kept_files) == (6, 124, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize("name", ["h264_bframes", "h264_long_gop"])
def test_a_key_frame_every_two_frames(name: str, tmp_path: Path) -> None:
    """Long GOPs become short ones; the fingerprint stays the original's."""
    recode(FIXTURES / name, tmp_path / "copy")
    was, made = (
        StreamingLeRobotDataset("some/name", root=root)
        for root in (FIXTURES / name, tmp_path / "copy")
    )

    assert_same_items(FIXTURES / name, tmp_path / "copy", at_least_db=38)
    assert made.meta.fingerprint == was.meta.fingerprint
    for path in (tmp_path / "copy").rglob("*.mp4"):
        with av.open(str(path)) as container:
            packets = [packet for packet in container.demux(video=0) if packet.size]
        assert [packet.is_keyframe for packet in packets[:4]] == [True, False, True, False]


def test_a_copy_of_an_older_version_is_of_that_version(tmp_path: Path) -> None:
    """The videos of v2.1 are encoded one by one; its other files and fields stay."""
    root = FIXTURES / "v21_videos"
    report = recode(root, tmp_path / "copy")
    was, made = info_of(root), info_of(tmp_path / "copy")

    assert_same_items(root, tmp_path / "copy", at_least_db=38)
    assert (report.video_files, report.frames) == (10, 286)
    assert {k: made[k] for k in made if k != "features"} == {
        k: was[k] for k in was if k != "features"
    }
    for name in ("episodes", "tasks", "episodes_stats"):
        files = [folder / f"meta/{name}.jsonl" for folder in (root, tmp_path / "copy")]
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("codec", RECODE_CRF)
def test_info_describes_the_new_videos(codec: str, tmp_path: Path) -> None:
    """The cameras' entries have LeRobot's fields with new values; the rest of info.json stays."""
    root = copy_of("av1_multifile", tmp_path)
    edit_info(root, lambda info: info.update(total_videos=6, remark="größer"))
    recode(root, tmp_path / "copy", codec, gop=3, crf=20.0)
    was, made = info_of(root), info_of(tmp_path / "copy")
    blocks = [made["features"][key].pop("info") for key in was["features"] if "images" in key]
    olds = [was["features"][key].pop("info") for key in was["features"] if "images" in key]

    assert made == was
    for block, old in zip(blocks, olds, strict=True):
        assert block.keys() == old.keys()
        assert (block["video.codec"], block["video.pix_fmt"]) == (NAMES[codec], "yuv420p")
        assert (block["video.g"], block["video.crf"]) == (3, 20)
        assert block["video.preset"] == (8 if codec == "libsvtav1" else None)
        same = ("video.height", "video.width", "video.fps", "video.channels", "has_audio")
        assert {key: block[key] for key in same} == {key: old[key] for key in same}


def test_an_old_description_of_a_camera_is_replaced(tmp_path: Path) -> None:
    """Datasets that describe videos under `video_info` are described under `info` afterwards."""
    root = copy_of("av1_multifile", tmp_path)

    def age(info: dict[str, Any]) -> None:
        entry = info["features"][TOP]
        entry["video_info"] = entry.pop("info")

    edit_info(root, age)
    recode(root, tmp_path / "copy")
    entry = info_of(tmp_path / "copy")["features"][TOP]

    assert "video_info" not in entry
    assert entry["info"]["video.codec"] == "h264"


def test_depth_stays_bit_for_bit(tmp_path: Path) -> None:
    """Depth videos and their entries in info.json stay unchanged."""
    recode(FIXTURES / "depth", tmp_path / "copy")
    name = "videos/observation.depth.top"
    was, made = info_of(FIXTURES / "depth"), info_of(tmp_path / "copy")

    assert contents_of(tmp_path / "copy", name) == contents_of(FIXTURES / "depth", name)
    assert made["features"]["observation.depth.top"] == was["features"]["observation.depth.top"]
    assert made["features"][TOP]["info"]["video.codec"] == "h264"
    assert_same_items(FIXTURES / "depth", tmp_path / "copy", at_least_db=38)


@pytest.mark.long
@pytest.mark.parametrize("link", [False, True])
def test_an_edit_of_the_copy_changes_no_original(link: bool, tmp_path: Path) -> None:
    """Files are shared only if links are requested; hidden files are not copied."""
    root = copy_of("av1_multifile", tmp_path)
    (root / "README.md").write_text("about")
    (root / ".cache").mkdir()
    (root / ".cache" / "download").write_text("of the original")
    options = {"link": True} if link else {}
    report = recode_dataset(root, tmp_path / "copy", RecodeSpec(), jobs=2, **options)
    same = {
        name
        for name in ("data/chunk-000/file-000.parquet", EPISODES, "README.md")
        if (tmp_path / "copy" / name).samefile(root / name)
    }

    assert contents_of(tmp_path / "copy", "data") == contents_of(root, "data")
    assert (tmp_path / "copy" / EPISODES).read_bytes() == (root / EPISODES).read_bytes()
    assert not (tmp_path / "copy" / ".cache").exists()
    can_link = link and "cloned" not in report.same_files
    assert same == ({"data/chunk-000/file-000.parquet"} if can_link else set())
    assert ("linked" in report.same_files) == can_link


def rename_camera(root: Path, name: str, video_path: str) -> None:
    """Rename the top camera in info.json and the episode table."""

    def change(info: dict[str, Any]) -> None:
        info["features"] = {
            name if key == TOP else key: entry
            for key, entry in info["features"].items()
            if "images" not in key or key == TOP
        }
        info["video_path"] = video_path

    edit_info(root, change)
    episodes = pq.read_table(root / EPISODES)
    columns = [column.replace(f"/{TOP}/", f"/{name}/") for column in episodes.column_names]
    pq.write_table(episodes.rename_columns(columns), root / EPISODES)


def test_nothing_is_written_outside_of_the_copy(tmp_path: Path) -> None:
    """A camera's name is untrusted and part of a path."""
    root = copy_of("av1_multifile", tmp_path / "here" / "deep")
    rename_camera(root, "..", "{video_key}/{video_key}/{chunk_index}-{file_index}.mp4")
    for path in (root / "videos" / TOP).rglob("*.mp4"):
        shutil.move(path, tmp_path / "here" / f"0-{int(path.stem[-3:])}.mp4")
    (tmp_path / "there").mkdir()

    with pytest.raises(MetadataError, match=r"'\.\./\.\./0-0\.mp4' is not a file below"):
        recode(root, tmp_path / "there" / "copy")
    assert list((tmp_path / "there").iterdir()) == []


def test_links_of_a_hub_snapshot_are_followed(tmp_path: Path) -> None:
    """A snapshot is full of symbolic links; the copy has files."""
    blobs = copy_of("av1_multifile", tmp_path)
    root = tmp_path / "snapshot"
    for path in blobs.rglob("*"):
        if path.is_file():
            link = root / path.relative_to(blobs)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    recode(root, tmp_path / "copy")

    assert not any(path.is_symlink() for path in (tmp_path / "copy").rglob("*"))
    assert_same_items(blobs, tmp_path / "copy", at_least_db=38)


def test_a_disk_that_cannot_link_gets_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk refuses links (simulated), the bytes are copied."""

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(staging.os, "link", refuse)
    source, target = tmp_path / "a", tmp_path / "folder" / "b"
    source.write_bytes(b"rows")

    assert staging.copy_cheaply(source, target, link=True) in ("cloned", "copied")
    assert target.read_bytes() == b"rows"
    assert not target.samefile(source)


@pytest.mark.long
def test_a_damaged_video_stops_the_run_and_the_next_one_resumes(tmp_path: Path) -> None:
    """The error names the file. Once it is repaired, the next run encodes the remaining files."""
    root = copy_of("av1_multifile", tmp_path)
    # The shortest file comes last, so others are done when it fails.
    last = root / f"videos/{TOP}/chunk-000/file-001.mp4"
    good = last.read_bytes()
    at = good.index(b"mdat") + 200
    last.write_bytes(good[:at] + bytes(3000) + good[at + 3000 :])
    with pytest.raises(VideoFileError, match=r"top/chunk-000/file-001\.mp4"):
        recode_dataset(root, tmp_path / "copy", RecodeSpec(), jobs=1)
    done = sorted((tmp_path / "copy.recoding").rglob("*.mp4"))
    last.write_bytes(good)

    assert not (tmp_path / "copy").exists()
    assert len(done) == 5
    assert recode(root, tmp_path / "copy").kept_files == 5
    assert_same_items(root, tmp_path / "copy", at_least_db=38)
    assert not (tmp_path / "copy.recoding").exists()


def test_another_encoding_does_not_resume_an_unfinished_copy(tmp_path: Path) -> None:
    """One copy never mixes two encodings."""
    staged = tmp_path / "copy.recoding"
    staged.mkdir()
    (staged / "run.json").write_text('{"codec": "hevc"}')

    with pytest.raises(WriteError, match=r'begun with.*"hevc".*want.*"h264".*Delete this folder'):
        recode(MULTIFILE, tmp_path / "copy")


def test_unsuitable_folders_are_rejected(tmp_path: Path) -> None:
    """An existing copy, a copy inside the dataset, and a source without a dataset."""
    root = copy_of("av1_multifile", tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(WriteError, match="found one that exists"):
        recode(root, tmp_path / "there")
    with pytest.raises(WriteError, match="inside it"):
        recode(root, root / "videos" / "copy")
    with pytest.raises(MetadataError, match="no LeRobot dataset"):
        recode(tmp_path / "there", tmp_path / "copy")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["av1_multifile", "there"]


@pytest.mark.parametrize(
    ("root", "cure"),
    [
        ("lerobot/pusht", "hf download lerobot/pusht --repo-type dataset"),
        ("hf://datasets/lerobot/pusht@main", "hf download lerobot/pusht --repo-type dataset"),
        ("s3://bucket/pusht", "Download a remote dataset first"),
        ("./nothing/here", "Download a remote dataset first"),
    ],
)
def test_a_remote_dataset_has_to_be_downloaded(root: str, cure: str, tmp_path: Path) -> None:
    """The error has the command."""
    with pytest.raises(WriteError, match=cure):
        recode_dataset(root, tmp_path / "copy", RecodeSpec())


def test_videos_that_cannot_be_encoded_are_rejected(tmp_path: Path) -> None:
    """Odd or too small frames are reported before anything is written."""
    root = copy_of("av1_multifile", tmp_path)
    odd = {"g": "6", "preset": "12"}
    encode(root / FIRST, "libsvtav1", odd, count=26, size=(95, 65))
    with pytest.raises(ValueError, match=r"file-000\.mp4: want frames of even.*found 95x65"):
        recode(root, tmp_path / "copy")
    encode(root / FIRST, "libsvtav1", odd, count=26, size=(32, 64))
    with pytest.raises(ValueError, match=r"file-000\.mp4: want images at least 64 pixels wide"):
        recode(root, tmp_path / "copy", "hevc")
    with pytest.raises(ValueError, match="nothing to encode"):
        recode(FIXTURES / "images", tmp_path / "copy")
    shutil.rmtree(root / "videos" / TOP)
    with pytest.raises(VideoFileError, match="there is no such file"):
        recode(root, tmp_path / "copy")

    assert [path.name for path in tmp_path.iterdir()] == ["av1_multifile"]


@pytest.mark.parametrize("crf", [52.0, float("nan")])
def test_a_quality_is_checked(crf: float) -> None:
    """An impossible one raises ValueError."""
    with pytest.raises(ValueError, match="crf of 0 to 51"):
        RecodeSpec(crf=crf)
