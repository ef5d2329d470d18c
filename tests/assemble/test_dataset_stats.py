# SPDX-License-Identifier: Apache-2.0
"""Statistics computed from rows and frames, beside LeRobot's own and numpy's."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream import LeRobotDataset
from robostream.assemble import (
    DatasetLocation,
    OpenedDataset,
    SampleOptions,
    compute_stats,
    open_dataset,
)
from robostream.assemble.stats import exact_column_stats, read_columns
from robostream.errors import DataFileError, SelectionError
from robostream.meta import MOMENTS, QUANTILES, LeRobotDatasetMetadata, column_stats
from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES, ROOTS, copy_of, edit_info, root_id

AV1 = FIXTURES / "av1_multifile"
READABLE = [root for root in ROOTS if '"v3' in (root / "meta/info.json").read_text()]


def opened(root: Path | str, episodes: list[int] | None = None) -> OpenedDataset:
    return open_dataset(DatasetLocation(str(root)), SampleOptions(episodes=episodes))


def assert_equal(found: Any, wanted: Any, *, rtol: float = 0) -> None:
    assert list(found) == list(wanted)
    for key in wanted:
        assert list(found[key]) == [*MOMENTS, *QUANTILES]
        for name in wanted[key]:
            np.testing.assert_allclose(found[key][name], wanted[key][name], rtol=rtol, err_msg=key)


@pytest.mark.parametrize("root", READABLE, ids=root_id)
def test_the_values_are_those_that_lerobot_recorded(root: Path) -> None:
    """Min, max, mean, std and count of each feature, up to the rounding of its float32 sums.

    LeRobot records bounds of quantiles, or averages over episodes, so those are not compared.
    """
    recorded = LeRobotDatasetMetadata(str(root)).stats
    assert recorded is not None
    found = compute_stats(opened(root), images=True)

    assert set(found) == set(recorded)
    for key, entry in recorded.items():
        # Recorders see frames before they are encoded, so a lossy video is only nearly the same.
        is_lossy = opened(root).meta.features[key]["dtype"] == "video"
        spread = np.maximum(entry["max"] - entry["min"], 1e-9)
        for name in ("mean", "std") if is_lossy else ("min", "max", "mean", "std"):
            off = np.abs(found[key][name] - entry[name]) / spread

            assert off.max() <= (0.02 if is_lossy else 2e-4), (key, name)
        assert found[key]["count"].tolist() == entry["count"].tolist()
        assert found[key]["q50"].shape == entry["mean"].shape


def test_quantiles_are_exact_over_all_selected_frames() -> None:
    """They are those of the joined columns, not a combination of those of episodes."""
    episodes = [0, 2, 4]
    dataset = LeRobotDataset(str(AV1), episodes=episodes, camera_keys=[])
    columns = dataset.select_columns(["action", "observation.state", "next.done"])
    found = compute_stats(opened(AV1, episodes), keys=list(columns))

    wanted = {key: column_stats(values.numpy()) for key, values in columns.items()}
    assert_equal(found, {key: wanted[key] for key in found})


def test_a_dataset_object_computes_those_of_its_selection() -> None:
    """`LeRobotDataset.compute_stats` has the form of `meta.stats`, without cameras by default."""
    dataset = LeRobotDataset(str(AV1), episodes=[1, 4])
    found = dataset.compute_stats()

    assert_equal(found, compute_stats(opened(AV1, [1, 4])))
    assert not set(dataset.meta.camera_keys) & set(found)
    assert found["index"]["count"].tolist() == [len(dataset)]
    with pytest.raises(SelectionError, match="images"):
        dataset.compute_stats(images="yes")  # type: ignore[arg-type]


def test_one_episode_has_the_statistics_that_the_writer_would_record() -> None:
    """Reader and writer share one rule, quantiles included."""
    found = compute_stats(opened(AV1, [2]), keys=["action"])["action"]
    rows = LeRobotDataset(str(AV1), episodes=[2], camera_keys=[]).select_columns("action")

    assert_equal({"action": found}, {"action": column_stats(rows["action"].numpy())})


def test_little_memory_takes_more_passes_and_gives_the_same() -> None:
    """Columns that do not fit together are read one after the other."""
    whole, parts = (compute_stats(opened(AV1), memory_bytes=size) for size in (1 << 30, 1))

    assert_equal(parts, whole)


def test_columns_come_in_runs_of_consecutive_episodes() -> None:
    """Each run lies in one file; together they are the selection."""
    runs = [episodes for episodes, _ in read_columns(opened(AV1, [0, 1, 2, 4]), ["action"])]

    assert [episode for run in runs for episode in run] == [0, 1, 2, 4]


def test_values_that_are_no_numbers_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """A warning counts the frames with NaN or infinite values."""
    values = np.array([[0.0, 1.0], [np.nan, np.inf], [2.0, 3.0]])
    with caplog.at_level(logging.WARNING):
        found = exact_column_stats("action", [values])

    assert "action: 1 of 3 frames" in caplog.text
    assert np.isnan(found["mean"][0])
    assert found["count"].tolist() == [3]


@pytest.mark.parametrize("keys", [["nothing"], ["note"]])
def test_unknown_features_and_texts_are_refused(keys: list[str]) -> None:
    """Texts have no statistics."""
    with pytest.raises(SelectionError, match="want features with statistics"):
        compute_stats(opened(FIXTURES / "depth"), keys=keys)


def test_cameras_of_other_channels_are_refused(tmp_path: Path) -> None:
    """Statistics exist for colour and depth."""
    root = copy_of("images", tmp_path)
    camera = "observation.images.top"
    edit_info(root, lambda info: info["features"][camera].update(shape=[48, 64, 4]))
    with pytest.raises(SelectionError, match=f"{camera}: want a camera of 3 colours"):
        compute_stats(opened(root), images=True)


def test_rows_of_another_episode_are_refused(tmp_path: Path) -> None:
    """Rows are checked as those of samples are."""
    root = copy_of("h264_long_gop", tmp_path)
    (path,) = (root / "data").rglob("*.parquet")
    table = pq.read_table(path)
    numbers = table["episode_index"].to_numpy().copy()
    numbers[-1] = 0
    at = table.column_names.index("episode_index")
    pq.write_table(table.set_column(at, "episode_index", pa.array(numbers)), path)
    with pytest.raises(DataFileError, match="episode 2"):
        compute_stats(opened(root))


def test_row_groups_of_many_episodes_are_read_once_each(tmp_path: Path) -> None:
    """Converted datasets have one row group for a whole file; the values are the same."""
    root = copy_of("h264_long_gop", tmp_path)
    (path,) = (root / "data").rglob("*.parquet")
    pq.write_table(pq.read_table(path), path, row_group_size=1 << 20)

    for episodes in (None, [1]):
        original = opened(FIXTURES / "h264_long_gop", episodes)
        assert_equal(compute_stats(opened(root, episodes)), compute_stats(original))


def test_remote_rows_give_the_same() -> None:
    """Byte ranges of a server's files, videos included."""
    with serve_files(FIXTURES) as url:
        found = compute_stats(opened(f"{url}/av1_multifile"), images=True)

    assert_equal(found, compute_stats(opened(AV1), images=True))
