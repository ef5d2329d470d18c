# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import WriteError
from robostream.meta import QUANTILES, LeRobotDatasetMetadata, column_stats
from robostream.tools import compare_stats, find_stats_file, write_stats
from tests.fixture_datasets import FIXTURES, copy_of, v20_of

VALUES = np.random.default_rng(0).normal(size=(50, 3))
STATS = {"action": column_stats(VALUES)}


@given(shift=st.floats(-5, 5))
def test_differences_are_shares_of_the_range(shift: float) -> None:
    """A shift of all values is found in moments and quantiles alike."""
    moved = {"action": column_stats(VALUES + shift)}
    (found,) = compare_stats(STATS, moved)
    largest = (abs(shift) / np.ptp(VALUES, axis=0)).max()

    assert found.moments == pytest.approx(largest, abs=1e-12)
    assert found.quantiles == pytest.approx(largest, abs=1e-12)


def test_constant_features_are_compared_by_their_value() -> None:
    """A range of 0 divides nothing."""
    one, other = ({"x": column_stats(np.full((4, 1), value))} for value in (200.0, 201.0))

    assert compare_stats(one, one)[0].moments == 0
    assert compare_stats(one, other)[0].moments == pytest.approx(1 / 200)


def test_infinite_values_agree_only_with_themselves() -> None:
    """The same infinity is no difference, a finite value beside it an infinite one."""
    # Dimensions with an infinite maximum, with both infinities, and without a finite value.
    low, high = np.array([0.0, -np.inf, np.inf]), np.full(3, np.inf)
    mean, std = np.array([np.inf, np.nan, np.inf]), np.full(3, np.nan)
    middle = {name: np.array([share, 2 * share, np.inf]) for name, share in QUANTILES.items()}
    one = {"x": {"min": low, "max": high, "mean": mean, "std": std, **middle}}
    (same,) = compare_stats(one, one)
    (finite,) = compare_stats(one, {"x": one["x"] | {"max": np.full(3, 1.0)}})
    (moved,) = compare_stats(one, {"x": one["x"] | {"q50": middle["q50"] + 0.099}})

    assert (same.moments, same.quantiles) == (0, 0)
    assert (finite.moments, finite.quantiles) == (np.inf, 0)
    assert (moved.moments, moved.quantiles) == (0, pytest.approx(0.099 / 0.99))


def test_what_is_not_recorded_is_not_compared() -> None:
    """Older datasets have no quantiles; a feature may be missing or of another shape."""
    old = {"action": {k: v for k, v in STATS["action"].items() if k not in QUANTILES}}

    assert compare_stats(STATS, old)[0].quantiles is None
    assert compare_stats(STATS, {})[0].moments is None
    assert compare_stats(STATS, {"action": column_stats(VALUES[:, :2])})[0].moments is None


def test_the_file_is_one_that_metadata_reads(tmp_path: Path) -> None:
    """In the order of the features; what was not computed stays as recorded."""
    root = copy_of("images", tmp_path)
    before = LeRobotDatasetMetadata(str(root))
    assert before.stats is not None
    path = find_stats_file(root)
    write_stats(path, {"action": before.stats["observation.state"]}, before.stats, {})
    after = LeRobotDatasetMetadata(str(root)).stats
    assert after is not None

    assert path == root / "meta/stats.json"
    assert after["action"]["mean"].shape == (6,)
    assert after["index"]["std"].tolist() == before.stats["index"]["std"].tolist()


def test_features_come_in_the_order_of_the_dataset(tmp_path: Path) -> None:
    """Equal statistics are equal files."""
    features = LeRobotDatasetMetadata(str(FIXTURES / "images")).features
    stats = {"index": STATS["action"], "action": STATS["action"]}
    write_stats(tmp_path / "a.json", stats, {}, features)

    assert list(json.loads((tmp_path / "a.json").read_text())) == ["action", "index"]


@pytest.mark.parametrize("name", [".", "nowhere", "file/dataset"])
def test_a_wrong_destination_is_refused(name: str, tmp_path: Path) -> None:
    """A folder without a dataset is no place for statistics."""
    with pytest.raises(WriteError, match="Nothing is written"):
        find_stats_file(tmp_path / name)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The message names it and the reason."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match=r"cannot write the statistics to .*a\.json"):
        write_stats(tmp_path / "file" / "a.json", STATS, {}, {})


def test_a_v21_dataset_has_no_file_for_them(tmp_path: Path) -> None:
    """Readers of v2.1 take the statistics of each episode; v2.0 has one file, as v3.0 has."""
    with pytest.raises(WriteError, match=r"is of v2\.1.*robostream convert.*Nothing is written"):
        find_stats_file(FIXTURES / "v21_videos")

    assert find_stats_file(v20_of("v21_videos", tmp_path)).name == "stats.json"
