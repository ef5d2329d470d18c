# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream.errors import WriteError
from robostream.meta import QUANTILES, DepthCoding
from robostream.write import DepthEncoderConfig, resume_writer
from tests.fixture_datasets import NAMES, copy_of, edit_info
from tests.write.recording import QUICK, TOP, check_dataset, load, quick_writer, record, rows


def digests(root: Path, folder: str) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in (root / folder).rglob("*")
        if p.is_file()
    }


def test_resumed_episodes_go_to_files_of_their_own(tmp_path: Path) -> None:
    """Appending never rewrites a file of rows, videos or the episode table."""
    root = tmp_path / "a"
    with quick_writer(root) as writer:
        number = record(writer, [5, 3])
    before = {f: digests(root, f) for f in ("data", "videos", "meta/episodes")}
    for lengths in ([4], [1, 6]):
        with resume_writer(root) as writer:
            number = record(writer, lengths, first=number)
    after = {f: digests(root, f) for f in before}

    check_dataset(root, [5, 3, 4, 1, 6])
    assert all(before[f].items() <= after[f].items() for f in before)
    assert load(root).episodes["data/file_index"].tolist() == [0, 0, 1, 2, 2]
    assert load(root).episodes[f"videos/{TOP}/from_timestamp"].tolist() == [0, 0.25, 0, 0, 0.05]
    assert load(root).episodes["meta/episodes/file_index"].tolist() == [0, 0, 1, 2, 2]


def test_resuming_encodes_as_before(tmp_path: Path) -> None:
    """Without options given, the codec and its options come from info.json, which stays true."""
    with quick_writer(tmp_path / "a") as writer:
        record(writer, [2])
    info = (tmp_path / "a/meta/info.json").read_text()
    with resume_writer(tmp_path / "a") as writer:
        record(writer, [2], first=2)
    features = [
        json.loads(text)["features"] for text in (info, (tmp_path / "a/meta/info.json").read_text())
    ]

    assert features[0] == features[1]
    assert features[0][TOP]["info"]["video.codec"] == "h264"


def test_statistics_grow_with_the_dataset(tmp_path: Path) -> None:
    """Global statistics after several sessions are those of all frames."""
    root = tmp_path / "a"
    with quick_writer(root) as writer:
        number = record(writer, [10, 4])
    with resume_writer(root) as writer:
        record(writer, [7], first=number)
    stats = load(root).stats
    assert stats is not None
    state = stats["observation.state"]

    np.testing.assert_allclose(state["mean"], np.full(6, 10.0))
    np.testing.assert_allclose(state["std"], np.full(6, np.arange(21).std()))
    assert (state["min"][0], state["max"][0], state["count"].tolist()) == (0, 20, [21])
    assert list(state) == ["min", "max", "mean", "std", "count", *QUANTILES]


@pytest.mark.parametrize("dataset", NAMES)
def test_lerobots_datasets_can_be_resumed(tmp_path: Path, dataset: str) -> None:
    """An episode is added to what LeRobot recorded: same columns, nothing of the old touched."""
    root = copy_of(dataset, tmp_path)
    before = load(root)
    old = {**digests(root, "data"), **digests(root, "videos"), **digests(root, "meta/episodes")}
    with resume_writer(root) as writer:
        for _ in range(3):
            frame: dict[str, object] = {"task": "a new task"}
            for name, entry in writer.info.features.items():
                if name in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
                    continue
                camera = entry["dtype"] in ("image", "video")
                kind = ("uint16" if name in writer.info.depth_keys else "uint8") if camera else None
                text = entry["dtype"] == "string"
                frame[name] = "text" if text else np.ones(entry["shape"], kind or entry["dtype"])
            writer.add_frame(frame)
        writer.save_episode()
    meta = load(root)
    files = sorted((root / "meta/episodes").glob("*/*.parquet"))
    schemas = [pq.read_schema(file) for file in files]

    assert meta.total_episodes == before.total_episodes + 1
    assert list(meta.tasks) == [*before.tasks, "a new task"]
    assert rows(root).num_rows == before.total_frames + 3
    assert schemas[0].equals(schemas[1])
    assert (
        old.items()
        <= {
            **digests(root, "data"),
            **digests(root, "videos"),
            **digests(root, "meta/episodes"),
        }.items()
    )


def test_a_table_of_another_recorder_keeps_its_columns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Columns it lacks are left out; its own, and those of a type too narrow, stay empty."""
    root = tmp_path / "a"
    with quick_writer(root) as writer:
        record(writer, [2])
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.ParquetFile(path).read()
    table = table.drop_columns([n for n in table.column_names if "/q" in n])
    table = table.append_column("operator", [["Ada"]])
    narrow = table.column_names.index("stats/index/std")
    table = table.set_column(narrow, "stats/index/std", pa.array([[0]], pa.list_(pa.int64())))
    pq.write_table(table, path)
    with resume_writer(root) as writer:
        record(writer, [3], first=2)
    added = pq.ParquetFile(root / "meta/episodes/chunk-000/file-001.parquet").read()

    assert added.column_names == table.column_names
    assert added["operator"].to_pylist() == [None]
    assert added["stats/index/std"].to_pylist() == [None]
    assert "stats/index/std" in caplog.text
    assert added["length"].to_pylist() == [3]
    check_dataset(root, [2, 3])


def test_missing_statistics_stay_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Statistics of a part of the dataset are not passed off as those of all of it."""
    root = tmp_path / "a"
    with quick_writer(root) as writer:
        record(writer, [2])
    (root / "meta/stats.json").unlink()
    with caplog.at_level(logging.WARNING), resume_writer(root) as writer:
        record(writer, [2], first=2)

    assert not (root / "meta/stats.json").exists()
    assert "no stats.json" in caplog.text


def test_a_codec_without_an_encoder_raises(tmp_path: Path) -> None:
    """Videos converted from elsewhere may have a codec no encoder here makes: one must be given."""
    root = copy_of("h264_bframes", tmp_path)
    edit_info(root, lambda info: info["features"][TOP]["info"].update({"video.codec": "vp9"}))
    with pytest.raises(ValueError, match="Pass the encoder to resume with"):
        resume_writer(root)
    resume_writer(root, encoder=QUICK).finalize()

    assert not (root / ".recording").exists()


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    """A folder without info.json raises and is not changed."""
    with pytest.raises(WriteError, match="no dataset to resume"):
        resume_writer(tmp_path / "nothing")

    assert not (tmp_path / "nothing").exists()


def test_depth_goes_on_with_its_coding(tmp_path: Path) -> None:
    """Another depth coding would be decoded wrongly, so it raises."""
    root = copy_of("depth", tmp_path)
    with pytest.raises(ValueError, match="wrong distances"):
        resume_writer(root, depth_encoder=DepthEncoderConfig(coding=DepthCoding(depth_max_m=5)))
    resume_writer(root).finalize()

    assert not (root / ".recording").exists()
