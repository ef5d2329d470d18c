# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parameters import examples
from tests.write.recording import TOP, check_dataset, load, quick_writer, record, rows


@pytest.mark.parametrize(
    "limits", [{}, {"video_files_size_in_mb": 0.01}, {"data_files_size_in_mb": 0.004}]
)
def test_files_roll_over_independently(tmp_path: Path, limits: dict[str, Any]) -> None:
    """A small limit for videos splits videos only, one for rows splits rows only."""
    lengths = [20, 25, 1, 30, 20, 5]
    with quick_writer(tmp_path / "a", **limits) as writer:
        record(writer, lengths)
    meta = load(tmp_path / "a")
    video_files = len(set(meta.episodes[f"videos/{TOP}/file_index"].tolist()))
    data_files = len(set(meta.episodes["data/file_index"].tolist()))

    check_dataset(tmp_path / "a", lengths)
    assert (video_files > 1) == ("video_files_size_in_mb" in limits)
    assert (data_files > 1) == ("data_files_size_in_mb" in limits)


@settings(examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=6),
    video_kb=st.integers(1, 60),
    data_kb=st.integers(1, 30),
    chunks_size=st.integers(1, 3),
)
def test_any_limits_give_a_whole_dataset(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    video_kb: int,
    data_kb: int,
    chunks_size: int,
) -> None:
    """Whatever the limits: all frames in order, videos below the limit unless alone in the file."""
    root = tmp_path_factory.mktemp("rollover") / "a"
    with quick_writer(
        root,
        video_files_size_in_mb=video_kb / 1024,
        data_files_size_in_mb=data_kb / 1024,
        chunks_size=chunks_size,
    ) as writer:
        record(writer, lengths)
    meta = load(root)
    chunks, files = (meta.episodes[f"videos/{TOP}/{n}_index"] for n in ("chunk", "file"))
    places = list(zip(chunks.tolist(), files.tolist(), strict=True))

    check_dataset(root, lengths)
    assert places == sorted(places)
    assert max(files) < chunks_size
    for episode, place in enumerate(places):
        size = (root / meta.get_video_file_path(episode, TOP)).stat().st_size
        assert places.count(place) == 1 or size < video_kb * 1024


def test_wide_rows_roll_over_where_lerobots_rule_says(tmp_path: Path) -> None:
    """A file is closed when its size and the guess for the next episode reach the limit."""
    features = {"x": {"dtype": "float64", "shape": (128,), "names": None}}
    rng = np.random.default_rng(0)
    with quick_writer(tmp_path / "a", features, data_files_size_in_mb=0.1) as writer:
        for _ in range(6):
            for _ in range(32):  # 32 KiB that do not compress, stored beside their dictionary
                writer.add_frame({"x": rng.random(128), "task": "wait"})
            writer.save_episode()
    files = load(tmp_path / "a").episodes["data/file_index"].tolist()
    sizes = [p.stat().st_size for p in sorted((tmp_path / "a/data").glob("*/*"))]

    assert files == sorted(files)
    assert 1 < len(set(files)) < 6
    assert max(sizes) < 0.1 * 1024 * 1024 * 1.1
    assert rows(tmp_path / "a").num_rows == 6 * 32


def test_joined_files_wait_outside_the_dataset(tmp_path: Path) -> None:
    """Until finalize() a reader that takes every file it finds sees nothing of a recording."""
    writer = quick_writer(tmp_path / "a", video_files_size_in_mb=0.001, data_files_size_in_mb=0.001)
    record(writer, [3, 3, 3])
    visible = [p.name for p in (tmp_path / "a").iterdir() if not p.name.startswith(".")]
    writer.finalize()

    assert visible == ["meta"]
    check_dataset(tmp_path / "a", [3, 3, 3])
