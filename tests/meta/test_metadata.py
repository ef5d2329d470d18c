# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream.errors import (
    BackwardCompatibilityError,
    DataFileError,
    ForwardCompatibilityError,
    MetadataError,
    SelectionError,
)
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import ALL_NAMES, FIXTURES, copy_of, edit_info

# Where LeRobot 0.4 and 0.6 have their converter.
CONVERTER_MODULES = ("datasets.v30", "scripts")
EPISODES = "meta/episodes/chunk-000/file-000.parquet"


def load(root: Path | str) -> LeRobotDatasetMetadata:
    return LeRobotDatasetMetadata("some/name", root=root)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_counts_agree_with_the_episode_table(name: str) -> None:
    """Totals, lengths and frame ranges of a dataset LeRobot wrote fit together."""
    meta = load(FIXTURES / name)
    lengths = meta.episodes["length"]

    assert len(meta.episodes) == meta.total_episodes
    assert lengths.sum() == meta.total_frames
    assert np.array_equal(meta.episodes["dataset_to_index"], np.cumsum(lengths))
    assert meta.episodes[0]["tasks"] == ["stack the cups"]
    assert meta.tasks.index == ["stack the cups", "open the drawer"]


def test_cameras_are_told_apart() -> None:
    """Video, image and depth cameras are found by their dtype and mark."""
    depth, images = load(FIXTURES / "depth"), load(FIXTURES / "images")

    assert depth.video_keys == ["observation.images.top", "observation.depth.top"]
    assert depth.depth_keys == ["observation.depth.top"]
    assert images.image_keys == images.camera_keys == ["observation.images.top"]
    assert images.video_keys == []


def test_paths_follow_the_templates() -> None:
    """An episode's files are named by the chunk and file numbers in its row."""
    meta = load(FIXTURES / "av1_multifile")
    last = meta.total_episodes - 1

    assert (FIXTURES / "av1_multifile" / meta.get_data_file_path(last)).is_file()
    path = meta.get_video_file_path(last, "observation.images.wrist")
    assert path == Path("videos/observation.images.wrist/chunk-000/file-002.mp4")


def test_statistics_are_arrays_of_at_least_one_axis() -> None:
    """Normalisation can index every statistic."""
    stats = load(FIXTURES / "h264_bframes").stats

    assert stats is not None
    assert stats["observation.images.top"]["mean"].shape == (3, 1, 1)
    assert all(value.ndim >= 1 for entry in stats.values() for value in entry.values())


def test_depth_statistics_follow_the_unit() -> None:
    """Millimetres become metres: a thousandth."""
    meta = load(FIXTURES / "depth")
    assert meta.stats is not None
    before = meta.stats["observation.depth.top"]
    meta.rescale_depth_stats("m")
    after = meta.stats["observation.depth.top"]

    np.testing.assert_allclose(after["mean"], before["mean"] / 1000)
    np.testing.assert_array_equal(after["count"], before["count"])


def test_the_fingerprint_is_of_the_content_not_the_place(tmp_path: Path) -> None:
    """A copy has the same fingerprint; another dataset has another."""
    copy = load(copy_of("h264_bframes", tmp_path))

    assert copy.fingerprint == load(FIXTURES / "h264_bframes").fingerprint
    assert len({load(FIXTURES / name).fingerprint for name in ALL_NAMES}) == len(ALL_NAMES)


def test_the_fingerprint_sees_a_changed_length(tmp_path: Path) -> None:
    """One frame moved from one episode to the next changes the fingerprint."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / EPISODES)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    columns["length"][0] += 1
    columns["dataset_to_index"][0] += 1
    columns["length"][1] -= 1
    columns["dataset_from_index"][1] += 1
    pq.write_table(pa.table(columns), root / EPISODES)

    assert load(root).fingerprint != load(FIXTURES / "images").fingerprint


def test_metadata_pickles_small() -> None:
    """Worker processes get the tables, not the files."""
    meta = load(FIXTURES / "av1_multifile")
    blob = pickle.dumps(meta)

    assert len(blob) < 20_000
    assert pickle.loads(blob).fingerprint == meta.fingerprint


def test_a_dataset_in_lerobot_home_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root, HF_LEROBOT_HOME is looked in first, and no network is touched."""
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path))
    shutil.copytree(FIXTURES / "images", tmp_path / "me" / "images")

    assert LeRobotDatasetMetadata("me/images").total_episodes == 3


def test_the_old_home_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LEROBOT_HOME is an error that names its successor."""
    monkeypatch.setenv("LEROBOT_HOME", "somewhere")

    with pytest.raises(ValueError, match="HF_LEROBOT_HOME"):
        LeRobotDatasetMetadata("me/images")


def test_filtering_gives_sorted_episodes_and_refuses_none() -> None:
    """A filter sees plain rows without statistics."""
    meta = load(FIXTURES / "h264_long_gop")
    seen: list[dict[str, Any]] = []

    assert meta.filter_episodes(lambda row: not seen.append(row) and row["length"] >= 40) == [0, 2]
    assert not any(key.startswith("stats/") for key in seen[0])
    with pytest.raises(SelectionError, match="accepts none"):
        meta.filter_episodes(lambda row: False)


def test_chunk_settings_are_rewritten_in_place(tmp_path: Path) -> None:
    """A change is on disk at once; a bad one changes nothing."""
    root = copy_of("images", tmp_path)
    load(root).update_chunk_settings(data_files_size_in_mb=50)

    assert load(root).data_files_size_in_mb == 50
    with pytest.raises(MetadataError, match="above 0"):
        load(root).update_chunk_settings(chunks_size=0)
    assert load(root).chunks_size == 1000
    assert sorted(p.name for p in (root / "meta").iterdir()) == [
        "episodes",
        "info.json",
        "stats.json",
        "tasks.parquet",
    ]


def test_no_dataset_at_all(tmp_path: Path) -> None:
    """A folder without info.json is told as such, with the cure."""
    with pytest.raises(MetadataError, match=r"info\.json: not found.*Give the folder that"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("version", "error"),
    [("v1.6", BackwardCompatibilityError), ("v3.1", ForwardCompatibilityError)],
)
def test_other_versions(tmp_path: Path, version: str, error: type[Exception]) -> None:
    """Older and newer datasets on disk are refused."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info.update(codebase_version=version))

    with pytest.raises(error, match=version):
        load(root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fps": 0}, "fps must be a number above 0"),
        ({"fps": "ten"}, "fps must be a number above 0"),
        ({"total_frames": -1}, "total_frames must be a whole number"),
        ({"total_frames": 28}, "info.json counts 3 episodes and 28 frames"),
        ({"total_episodes": 4}, "info.json counts 4 episodes"),
        ({"features": {"a/b": {"dtype": "float32", "shape": [1]}}}, "contains '/'"),
        ({"features": {"a": {"dtype": "complex64", "shape": [1]}}}, "has dtype 'complex64'"),
        ({"features": {"a": {"dtype": "float32", "shape": [0]}}}, "whole numbers above 0"),
        (
            {"features": {"a": {"dtype": "float32", "shape": [1 << 20, 1 << 20]}}},
            "1,099,511,627,776 numbers for each frame; want at most",
        ),
        ({"data_path": "/etc/{chunk_index}"}, "below the dataset's root"),
        ({"data_path": "../{chunk_index}/{file_index}"}, "below the dataset's root"),
        ({"data_path": "data/{chunk_index:0999999999d}"}, "fields .* and no others"),
        ({"data_path": "data/{chunk_index.__class__}"}, "fields .* and no others"),
        ({"data_path": "data/{chunk_index!r}"}, "fields .* and no others"),
        ({"video_path": "s3://elsewhere/{video_key}"}, "below the dataset's root"),
        ({"features": {"a": {"dtype": "float32"}}}, "an object with 'dtype' and 'shape'"),
        ({"features": {"a": {"dtype": "image", "shape": [3]}}}, "want three numbers"),
        ({"features": {"a": {"dtype": "video", "shape": [4, 4, 3]}}}, "video_path is empty"),
        ({"data_path": None}, r"data_path is None; want a text with .*Put the usual value there"),
        ({"data_path": "{}/{file_index}"}, r"\{chunk_index\}, \{file_index\} and no others"),
        ({"video_path": "{episode_key}/{file_index:03d}"}, r"one of v2\.x: convert the dataset"),
    ],
)
def test_a_contradictory_info(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Each fault of info.json is named."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info.update(change))

    with pytest.raises(MetadataError, match=message):
        load(root)


def test_the_path_template_of_an_older_version(tmp_path: Path) -> None:
    """A converted info.json that kept v2.1's template is named with it, before any file is read."""
    root = copy_of("images", tmp_path)
    old = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    edit_info(root, lambda info: info.update(data_path=old))

    with pytest.raises(MetadataError) as refusal:
        load(root)
    converters = [f"lerobot.{module}.convert_dataset_v21_to_v30" for module in CONVERTER_MODULES]
    for words in (f"{root}/meta/info.json: data_path is '{old}'", *converters):
        assert words in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fps": 3}'])
def test_an_info_that_is_no_info(tmp_path: Path, text: str) -> None:
    """Broken JSON and missing fields are errors that name the file."""
    root = copy_of("images", tmp_path)
    (root / "meta" / "info.json").write_text(text)

    with pytest.raises(MetadataError, match=r"info\.json"):
        load(root)


def test_unknown_fields_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fields of older formats do not stop the reader."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info.update(total_videos=3))
    load(root)

    assert "total_videos" in caplog.text


@pytest.mark.parametrize("file", [EPISODES, "meta/tasks.parquet"])
@pytest.mark.parametrize("keep", [0, 100, -8])
def test_truncated_tables(tmp_path: Path, file: str, keep: int) -> None:
    """An empty or cut Parquet file is named."""
    root = copy_of("images", tmp_path)
    content = (root / file).read_bytes()
    (root / file).write_bytes(content[:keep])

    with pytest.raises(DataFileError, match=f"{file}: not a readable Parquet file"):
        load(root)


def test_missing_tables(tmp_path: Path) -> None:
    """A missing episode table or task table is an error that says what to copy."""
    root = copy_of("images", tmp_path)
    (root / "meta" / "tasks.parquet").unlink()
    with pytest.raises(MetadataError, match="counts 2 tasks"):
        load(root)

    root = copy_of("h264_bframes", tmp_path)
    (root / EPISODES).unlink()
    with pytest.raises(MetadataError, match="no episode table found"):
        load(root)


def test_chunks_on_another_disk_are_found(tmp_path: Path) -> None:
    """A chunk folder that is a link, and a whole meta/episodes that is one, are followed."""
    root = copy_of("av1_multifile", tmp_path)
    (tmp_path / "disk").mkdir()
    for part in ("meta/episodes/chunk-000", "meta/episodes", "data/chunk-000"):
        elsewhere = tmp_path / "disk" / part.replace("/", "-")
        (root / part).rename(elsewhere)
        (root / part).symlink_to(elsewhere)

    assert load(root).fingerprint == load(FIXTURES / "av1_multifile").fingerprint


def test_the_home_folder_may_be_written_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root that begins with ~ lies in the home folder, as a text and as a path."""
    monkeypatch.setenv("HOME", str(tmp_path))
    copy_of("images", tmp_path)

    assert load("~/images").root == load(Path("~/images")).root == tmp_path / "images"


@pytest.mark.parametrize("repo_id", ["images", "./images", "~/images", "{}/images"])
def test_a_folder_may_be_the_name(
    repo_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root, a path is one, and so is the name of a folder here that holds a dataset."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.chdir(tmp_path)
    copy_of("images", tmp_path)
    (tmp_path / "lerobot" / "images").mkdir(parents=True)

    assert LeRobotDatasetMetadata(repo_id.format(tmp_path)).root == tmp_path / "images"


@pytest.mark.parametrize("options", [{"revision": "main"}, {"force_cache_sync": True}])
def test_who_asks_for_a_revision_does_not_mean_a_folder_here(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has none, so the name is looked up."""
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.chdir(tmp_path)
    copy_of("images", tmp_path)
    copy_of("images", tmp_path / "lerobot")

    found = LeRobotDatasetMetadata("images", **options)

    assert found.root == tmp_path / "lerobot" / "images"


def test_a_folder_that_is_no_dataset_is_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is looked up though something else here is called the same."""
    monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
    monkeypatch.chdir(tmp_path)
    copy_of("images", tmp_path / "lerobot")
    (tmp_path / "images").mkdir()

    assert LeRobotDatasetMetadata("images").root == tmp_path / "lerobot" / "images"


def test_an_episode_table_with_a_gap(tmp_path: Path) -> None:
    """Rows must be episodes 0, 1, 2, ... since lookups are by place."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / EPISODES)
    pq.write_table(pa.concat_tables([table.slice(0, 1), table.slice(2, 1)]), root / EPISODES)

    with pytest.raises(MetadataError, match="row 1 holds episode 2"):
        load(root)


def test_a_recorded_camera_missing_from_the_table(tmp_path: Path) -> None:
    """A camera that info.json declares but no episode has is named."""
    root = copy_of("h264_bframes", tmp_path)
    camera = {"dtype": "video", "shape": [4, 4, 3], "names": None}
    edit_info(root, lambda info: info["features"].update({"observation.images.new": camera}))

    with pytest.raises(MetadataError, match=r"videos/observation.images.new/chunk_index"):
        load(root)


def test_a_dataset_without_statistics(tmp_path: Path) -> None:
    """Statistics are optional; broken ones are not."""
    root = copy_of("images", tmp_path)
    (root / "meta" / "stats.json").write_text("[1]")
    with pytest.raises(MetadataError, match="statistics are optional"):
        load(root)
    (root / "meta" / "stats.json").unlink()

    assert load(root).stats is None


def test_a_path_of_no_camera_or_episode() -> None:
    """Asking for what is not there names what is."""
    meta = load(FIXTURES / "h264_bframes")

    with pytest.raises(SelectionError, match="its videos are"):
        meta.get_video_file_path(0, "observation.images.nope")
    with pytest.raises(SelectionError, match="episode 7 does not exist"):
        meta.get_data_file_path(7)


def test_an_unknown_protocol_is_explained() -> None:
    """A root that is no folder and no known URL says what works."""
    with pytest.raises(MetadataError, match="hf://datasets/owner/name"):
        load("nosuch://bucket/x")
