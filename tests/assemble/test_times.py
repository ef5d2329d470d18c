# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble import DatasetLocation, RowReader, SampleOptions, open_dataset
from robostream.assemble.columns import check_times
from robostream.errors import DataFileError
from tests.fixture_datasets import ROOTS, copy_of, root_id

DATA = "data/chunk-000/file-000.parquet"
TOLERANCE_S = 1e-4
WHERE = "file.parquet: episode 2"


@given(
    fps=st.sampled_from([1, 5, 10, 15, 24, 29.97, 30, 50, 60, 120, 240]),
    start=st.integers(0, 10_000_000),
    in_32_bits=st.booleans(),
)
def test_times_rounded_to_32_bits_are_right_at_any_length(
    fps: float, start: int, in_32_bits: bool
) -> None:
    """Hours into an episode 32 bits are coarser than the tolerance, and still the frame's time."""
    frames = np.arange(start, start + 50)
    exact = (frames / fps).astype(np.float32)
    computed = frames.astype(np.float32) / np.float32(fps)

    check_times(computed if in_32_bits else exact, frames, fps, TOLERANCE_S, WHERE)


@given(
    fps=st.sampled_from([10, 30, 60]),
    length=st.integers(2, 2_000),
    off=st.sampled_from([-1.0, 1.0, 0.5, float("nan")]),
    data=st.data(),
)
def test_one_wrong_time_is_found(fps: int, length: int, off: float, data: st.DataObject) -> None:
    """The first frame that is off by half a frame or more is named with both times."""
    wrong = data.draw(st.integers(0, length - 1))
    frames = np.arange(length)
    times = (frames / fps).astype(np.float32)
    times[wrong] += np.float32(off / fps)

    with pytest.raises(DataFileError, match=rf"{WHERE}: frame {wrong} has .*1 of {length} frames"):
        check_times(times, frames, fps, TOLERANCE_S, WHERE)


def test_a_wrong_fps_is_told_by_the_steps() -> None:
    """Times of 30 fps in a dataset of 15 name both rates and the cure."""
    frames = np.arange(62)

    with pytest.raises(
        DataFileError, match=r"frame 1 has timestamp 0\.0333333 s, want .*0\.0666667"
    ):
        check_times((frames / 30).astype(np.float32), frames, 15, TOLERANCE_S, WHERE)
    with pytest.raises(DataFileError, match=r"those of 30 fps, info\.json says 15\).*Correct fps"):
        check_times((frames / 30).astype(np.float32), frames, 15, TOLERANCE_S, WHERE)


@pytest.mark.parametrize("root", ROOTS, ids=root_id)
def test_tables_lerobot_wrote_have_the_times_of_their_frames(root: Path) -> None:
    """A reader with a tolerance reads them like one without."""
    dataset = open_dataset(DatasetLocation("some/name", root), SampleOptions())
    meta, reader = dataset.meta, RowReader(dataset, dataset.file_opener(), [], TOLERANCE_S)

    assert [reader.read(e).length for e in range(meta.total_episodes)] == list(
        meta.episodes["length"]
    )


def test_a_reader_with_a_tolerance_refuses_wrong_times(tmp_path: Path) -> None:
    """Times that are all 0 name the file and the episode; without a tolerance they are data."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / DATA)
    place = table.column_names.index("timestamp")
    zeros = pa.array(np.zeros(len(table), np.float32))
    pq.write_table(table.set_column(place, "timestamp", zeros), root / DATA)
    dataset = open_dataset(DatasetLocation("some/name", root), SampleOptions())

    assert not RowReader(dataset, dataset.file_opener(), []).read(1).numbers["timestamp"].any()
    with pytest.raises(DataFileError, match=r"file-000\.parquet: episode 1: frame 1 has.* 6 of 7"):
        RowReader(dataset, dataset.file_opener(), [], TOLERANCE_S).read(1)
