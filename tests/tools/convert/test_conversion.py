# SPDX-License-Identifier: Apache-2.0
"""A v3.0 copy of a v2.x dataset has its rows, packets, tasks and statistics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from robostream import LeRobotDataset, LeRobotDatasetMetadata
from robostream.errors import (
    BackwardCompatibilityError,
    DataFileError,
    SelectionError,
    VideoFileError,
    WriteError,
)
from robostream.tools import ConvertReport, convert_dataset
from tests.fixture_datasets import FIXTURES, copy_of, edit_info, v20_of
from tests.loader.streams import open_loader, open_stream
from tests.tools.convert.videos import encode_as_h264, packets, shift_frames

VIDEOS, IMAGES = FIXTURES / "v21_videos", FIXTURES / "v21_images"
LEROBOTS = FIXTURES / "v21_videos_as_v30"
TOP, WRIST = "observation.images.top", "observation.images.wrist"


def convert(root: Path, copy: Path, **options: Any) -> ConvertReport:
    return convert_dataset(root, copy, **options)


def meta_of(root: Path) -> LeRobotDatasetMetadata:
    return LeRobotDatasetMetadata("some/name", root)


def rows_file(root: Path, episode: int) -> Path:
    return root / f"data/chunk-000/episode_{episode:06d}.parquet"


def video_file(root: Path, key: str, episode: int) -> Path:
    return root / f"videos/chunk-000/{key}/episode_{episode:06d}.mp4"


def assert_same_items(root: Path, copy: Path) -> None:
    """Every item of the copy equals that of its source, bit for bit."""
    was, made = (LeRobotDataset("some/name", folder) for folder in (root, copy))
    assert len(was) == len(made) > 0
    for want, found in zip(was, made, strict=True):
        assert want.keys() == found.keys()
        for key, value in want.items():
            same = torch.equal(value, found[key]) if torch.is_tensor(value) else value == found[key]
            assert same, key


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The conversion of the fixture with videos, in several files of each kind."""
    target = tmp_path_factory.mktemp("convert") / "copy"
    sizes = {"data_files_size_in_mb": 0.02, "video_files_size_in_mb": 0.05}
    convert(VIDEOS, target, jobs=2, **sizes)
    return target


def test_items_are_those_of_the_source(copy: Path) -> None:
    """Rows, pixels, tasks and times, of files that hold several episodes."""
    files = [sorted(copy.glob(kind)) for kind in ("data/*/*.parquet", f"videos/{TOP}/*/*.mp4")]

    assert [len(found) for found in files] == [2, 2]
    assert_same_items(VIDEOS, copy)


@pytest.mark.parametrize("name", ["v21_images", "v21_videos"])
def test_the_report_counts_files(name: str, tmp_path: Path) -> None:
    """One file of each kind by default; images stay in their rows."""
    report = convert(FIXTURES / name, tmp_path / "copy")
    meta = meta_of(FIXTURES / name)

    assert report == ConvertReport(
        path=tmp_path / "copy",
        version="v2.1",
        episodes=meta.total_episodes,
        frames=meta.total_frames,
        cameras=len(meta.video_keys),
        source_files=meta.total_episodes * (1 + len(meta.video_keys)),
        files=1 + len(meta.video_keys),
        kept_files=0,
        copied_files=2,  # expected/ of the fixture
    )
    assert_same_items(FIXTURES / name, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_v20_dataset_is_converted(tmp_path: Path) -> None:
    """Its statistics are those of the whole dataset; episodes have none of their own."""
    root = v20_of("v21_videos", tmp_path)
    convert(root, tmp_path / "copy")
    (table,) = (tmp_path / "copy/meta/episodes").rglob("*.parquet")

    assert_same_items(root, tmp_path / "copy")
    assert not [name for name in pq.read_schema(table).names if name.startswith("stats/")]
    assert json.loads((tmp_path / "copy/meta/stats.json").read_text()) == json.loads(
        (root / "meta/stats.json").read_text()
    )


@pytest.mark.parametrize("shuffle", [True, False])
def test_both_versions_deliver_the_same_stream(copy: Path, shuffle: bool) -> None:
    """Values, order and receipts of two epochs are equal for the same seed."""
    delivered = []
    for root in (VIDEOS, copy):
        loader = open_loader(open_stream(root, seed=3, shuffle=shuffle), 8)
        epochs = [[(batch, loader.state_dict()) for batch in loader] for _ in range(2)]
        delivered.append([pair for epoch in epochs for pair in epoch])

    assert len(delivered[0]) == len(delivered[1]) == 2 * 18
    for (old, old_state), (new, new_state) in zip(*delivered, strict=True):
        assert old_state["receipt"] == new_state["receipt"]
        assert old_state["position"] == new_state["position"]
        assert old.keys() == new.keys()
        for key, value in old.items():
            same = torch.equal(value, new[key]) if torch.is_tensor(value) else value == new[key]
            assert same, key


def test_packets_are_copied_not_encoded(copy: Path) -> None:
    """Each packet of the source is in the copy, in order, at its time after the episode's start."""
    table = meta_of(copy)
    for key in (TOP, WRIST):
        for episode in range(5):
            path = copy / table.get_video_file_path(episode, key)
            start_s = table.episodes[f"videos/{key}/from_timestamp"][episode]
            start = Fraction(round(start_s * 20), 20)
            source = packets(video_file(VIDEOS, key, episode))
            want = [(data, time + start) for data, time in source]
            found = [pair for pair in packets(path) if start <= pair[1]][: len(want)]

            assert found == want


def test_metadata_is_that_of_lerobots_converter(copy: Path) -> None:
    """Episodes, tasks, statistics and info.json, but for what the size of files decides."""
    ours, theirs = meta_of(copy), meta_of(LEROBOTS)
    for column in ("length", "dataset_from_index", "dataset_to_index"):
        np.testing.assert_array_equal(ours.episodes[column], theirs.episodes[column])
    assert ours.episodes["tasks"] == theirs.episodes["tasks"]
    assert list(ours.tasks) == list(theirs.tasks)
    assert ours.stats is not None
    assert theirs.stats is not None
    assert ours.stats.keys() == theirs.stats.keys()
    for key, entry in theirs.stats.items():
        for name, value in entry.items():
            np.testing.assert_allclose(ours.stats[key][name], value, rtol=1e-9, atol=1e-12)
    different = ("features", "data_files_size_in_mb", "video_files_size_in_mb")
    info, other = ours.info.to_dict(), theirs.info.to_dict()
    assert {k: v for k, v in info.items() if k not in different} == {
        k: v for k, v in other.items() if k not in different
    }
    assert ours.shapes == theirs.shapes


def test_every_episode_is_a_row_group_with_its_statistics(copy: Path) -> None:
    """Readers fetch an episode's rows alone; merging tools find each episode's statistics."""
    lengths = meta_of(VIDEOS).episodes["length"].tolist()
    groups = []
    for path in sorted(copy.glob("data/*/*.parquet")):
        metadata = pq.read_metadata(path)
        groups += [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    (path,) = (copy / "meta/episodes").rglob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    lines = (VIDEOS / "meta/episodes_stats.jsonl").read_text().splitlines()

    assert groups == lengths
    for row, line in zip(rows, map(json.loads, lines), strict=True):
        stats = line["stats"]
        found = {name: row[name] for name in row if name.startswith("stats/")}
        assert found == {f"stats/{f}/{n}": v for f in stats for n, v in stats[f].items()}


def test_frames_that_are_stored_out_of_order_keep_their_times(tmp_path: Path) -> None:
    """H.264 with B-frames, episodes of every depth of reordering in one file."""
    root = copy_of("v21_videos", tmp_path)
    for episode, b_frames in enumerate((2, 0, 3, 0, 1)):
        encode_as_h264(video_file(root, TOP, episode), b_frames=b_frames)
    report = convert(root, tmp_path / "copy")

    assert report.files >= 3
    assert_same_items(root, tmp_path / "copy")


def test_videos_of_several_codecs_do_not_share_a_file(tmp_path: Path) -> None:
    """One sample description cannot hold both; each run of equal ones has a file."""
    root = copy_of("v21_videos", tmp_path)
    encode_as_h264(video_file(root, TOP, 2), b_frames=0)
    convert(root, tmp_path / "copy")
    files = meta_of(tmp_path / "copy").episodes[f"videos/{TOP}/file_index"]

    assert files.tolist() == [0, 0, 1, 2, 2]
    assert_same_items(root, tmp_path / "copy")


def test_frames_beyond_the_rows_are_kept(tmp_path: Path) -> None:
    """A video may be longer than its episode; the next one begins after it."""
    root = copy_of("v21_videos", tmp_path)
    shutil.copy(video_file(root, TOP, 0), video_file(root, TOP, 1))
    convert(root, tmp_path / "copy")
    starts = meta_of(tmp_path / "copy").episodes[f"videos/{TOP}/from_timestamp"]

    assert starts[2] == 2 * starts[1]
    assert_same_items(root, tmp_path / "copy")


def test_rows_with_nan_are_equal_to_themselves(tmp_path: Path) -> None:
    """A sensor that failed is no difference between source and copy."""
    root = copy_of("v21_videos", tmp_path)
    table = pq.read_table(rows_file(root, 1))
    values = np.array(table.column("next.reward").to_pylist(), np.float32)
    values[3] = np.nan
    place = table.column_names.index("next.reward")
    field = table.schema.field("next.reward")
    pq.write_table(table.set_column(place, field, pa.array(values)), rows_file(root, 1))
    convert(root, tmp_path / "copy")

    found = LeRobotDataset("some/name", tmp_path / "copy")[37 + 3]["next.reward"]
    assert torch.isnan(found)


def test_other_files_come_along(tmp_path: Path) -> None:
    """README.md and files of other programs in meta/; not what v3.0 stores otherwise."""
    root = copy_of("v21_videos", tmp_path)
    (root / "README.md").write_text("# Cups")
    (root / "meta/modality.json").write_text("{}")
    (root / ".cache").mkdir()
    (root / ".cache/notes").write_text("of a download")
    (root / "images/top").mkdir(parents=True)
    (root / "images/top/frame-000000.png").write_bytes(b"waits to be encoded")
    convert(root, tmp_path / "copy")
    tops = {path.name for path in (tmp_path / "copy").iterdir()}
    metas = {path.name for path in (tmp_path / "copy/meta").iterdir()}

    assert tops == {"README.md", "data", "expected", "meta", "videos"}
    assert metas == {"episodes", "info.json", "modality.json", "stats.json", "tasks.parquet"}


def test_what_is_left_out_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Columns that info.json does not declare, and sound."""
    root = copy_of("v21_videos", tmp_path)
    for episode in range(5):
        table = pq.read_table(rows_file(root, episode))
        column = pa.array(range(table.num_rows))
        pq.write_table(table.append_column("temperature", column), rows_file(root, episode))
    edit_info(root, lambda info: info["features"][TOP]["info"].update(has_audio=True))
    early = {"video_info": {"video.codec": "av1", "has_audio": True}}
    edit_info(root, lambda info: info["features"][WRIST].update(early))
    convert(root, tmp_path / "copy")

    assert "the columns temperature are not in info.json, so they are left out" in caplog.text
    assert f"the sound of {TOP}, {WRIST} is left out" in caplog.text
    made = meta_of(tmp_path / "copy").features
    assert made[TOP]["info"]["has_audio"] is False
    assert made[WRIST]["video_info"] == {"video.codec": "av1", "has_audio": False}
    assert made[WRIST]["info"]["has_audio"] is False
    assert_same_items(root, tmp_path / "copy")


def shorten_video(root: Path) -> None:
    encode_as_h264(video_file(root, WRIST, 1), b_frames=0, frames=20)


def remove_video(root: Path) -> None:
    video_file(root, WRIST, 2).unlink()


def drop_a_row(root: Path) -> None:
    pq.write_table(pq.read_table(rows_file(root, 3)).slice(0, 0), rows_file(root, 3))


def drop_a_column(root: Path) -> None:
    pq.write_table(pq.read_table(rows_file(root, 2)).drop(["action"]), rows_file(root, 2))


def move_frames(root: Path) -> None:
    shift_frames(video_file(root, TOP, 4), Fraction(1, 30))


def truncate_rows(root: Path) -> None:
    rows_file(root, 0).write_bytes(rows_file(root, 0).read_bytes()[:2000])


def add_to_column(path: Path, name: str, value: float) -> None:
    table = pq.read_table(path)
    field, numbers = table.schema.field(name), table.column(name).to_numpy() + value
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, field, pa.array(numbers, field.type)), path)


def number_rows_as_another_episode(root: Path) -> None:
    add_to_column(rows_file(root, 1), "episode_index", 6)


def move_times(root: Path) -> None:
    add_to_column(rows_file(root, 1), "timestamp", 1)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (shorten_video, VideoFileError, r"wrist/episode_000001\.mp4, episode 1: want a frame for"),
        (remove_video, VideoFileError, r"wrist/episode_000002\.mp4: there is no such file"),
        (drop_a_row, DataFileError, r"000003\.parquet: want the 1 frames .* found 0 rows"),
        (drop_a_column, DataFileError, r"000002\.parquet: want a Parquet file with the columns"),
        (move_frames, VideoFileError, r"top/episode_000004\.mp4, .*robostream also streams"),
        (truncate_rows, DataFileError, r"000000\.parquet: want a Parquet file"),
        (number_rows_as_another_episode, DataFileError, r"000001\.parquet: .* hold episodes \[7\]"),
        (move_times, DataFileError, r"000001\.parquet: episode 1: frame 0 has timestamp 1 s, want"),
    ],
)
def test_a_damaged_source_is_named_and_nothing_is_made(
    damage: Callable[[Path], None], error: type[Exception], message: str, tmp_path: Path
) -> None:
    """There is no copy; a later run with a repaired source makes it."""
    root = copy_of("v21_videos", tmp_path)
    damage(root)
    with pytest.raises(error, match=message):
        convert(root, tmp_path / "copy")

    assert not (tmp_path / "copy").exists()
    shutil.rmtree(root)
    copy_of("v21_videos", tmp_path)
    convert(root, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "v21_videos"]


def test_an_image_without_its_bytes_is_an_error(tmp_path: Path) -> None:
    """Only its path was stored, which leads nowhere."""
    root = copy_of("v21_images", tmp_path)
    table = pq.read_table(rows_file(root, 1))
    (key,) = meta_of(root).image_keys
    images = [{"bytes": None, "path": "frame.png"}] * table.num_rows
    field = table.schema.field(key)
    column = pa.array(images, field.type)
    place = table.column_names.index(key)
    pq.write_table(table.set_column(place, field, column), rows_file(root, 1))

    with pytest.raises(DataFileError, match=r"000001\.parquet: want the encoded image in each row"):
        convert(root, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_is_converted_and_where_to(tmp_path: Path) -> None:
    """Only v2.x, into a new folder outside of it."""
    root = copy_of("v21_videos", tmp_path)
    with pytest.raises(SelectionError, match=r"want a dataset of v2\.0 or v2\.1, found v3\.0"):
        convert(LEROBOTS, tmp_path / "copy")
    with pytest.raises(WriteError, match="found one that exists"):
        convert(VIDEOS, root)
    with pytest.raises(WriteError, match="inside it"):
        convert(root, root / "copy")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(WriteError, match="found one that exists"):
        convert(VIDEOS, tmp_path / "link")
    (tmp_path / "link").unlink()
    edit_info(root, lambda info: info.update(codebase_version="v1.6"))
    with pytest.raises(BackwardCompatibilityError, match=r"Convert it to v2\.1"):
        convert(root, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["v21_videos"]
