# SPDX-License-Identifier: Apache-2.0
"""Which file an episode goes to, and how a file is compared with what it was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import WriteError
from robostream.meta import LeRobotDatasetMetadata
from robostream.tools.convert import converted_info
from robostream.tools.convert_files import compare_videos, has_equal_bits
from robostream.write import (
    EpisodeFile,
    FilePlace,
    FileTotals,
    VideoPart,
    join_videos,
    place_files,
)
from tests.fixture_datasets import FIXTURES
from tests.tools.convert.videos import packets

ROOT = FIXTURES / "v21_videos"
META = LeRobotDatasetMetadata("some/name", ROOT)
RATE = Fraction(20)
MB = 1024 * 1024


def parts_of(key: str) -> list[VideoPart]:
    """The videos of a camera, one after the other."""
    parts, start = [], 0
    for path in sorted((ROOT / "videos/chunk-000" / key).iterdir()):
        length = len(packets(path))
        parts.append(VideoPart(path, start, length, 0))
        start += length
    return parts


@given(
    files=st.lists(
        st.tuples(st.integers(1, 3 * MB), st.integers(1, 50), st.sampled_from("aab")), min_size=1
    ),
    limit_mb=st.floats(0.5, 5),
    chunks_size=st.integers(1, 4),
)
def test_episodes_fill_files_in_order(
    files: list[tuple[int, int, str]], limit_mb: float, chunks_size: int
) -> None:
    """A file has consecutive episodes of equal parameters and stays below its limit."""
    info = converted_info(META, data_files_size_in_mb=1, video_files_size_in_mb=limit_mb)
    info = replace(info, chunks_size=chunks_size)
    totals: Mapping[str | None, FileTotals] = {"camera": FileTotals(FilePlace(0, 0))}
    placed = []
    for size, length, kind in files:
        file = EpisodeFile(Path("video.mp4"), size, length, 0, kind)
        totals, places = place_files(totals, {"camera": file}, info)
        placed.append(places["camera"])

    numbers = [file.place.chunk * chunks_size + file.place.file for file in placed]
    assert sorted(set(numbers)) == list(range(len(set(numbers))))
    assert numbers == sorted(numbers)
    for _, group in groupby(zip(numbers, placed, files, strict=True), key=lambda one: one[0]):
        together = list(group)
        assert len({kind for _, _, (_, _, kind) in together}) == 1
        assert len(together) == 1 or sum(s for _, _, (s, _, _) in together) < limit_mb * MB
        starts = np.cumsum([0, *(length for _, _, (_, length, _) in together)])[:-1]
        assert [file.start_frame for _, file, _ in together] == starts.tolist()


def test_a_joined_video_equals_its_parts(tmp_path: Path) -> None:
    """Every packet at its place; the comparison is silent."""
    parts = parts_of("observation.images.top")
    join_videos(parts, tmp_path / "joined.mp4", rate=RATE)

    compare_videos(parts, tmp_path / "joined.mp4", RATE)


def test_other_packets_are_noticed(tmp_path: Path) -> None:
    """One episode of another camera, with as many frames, is a difference."""
    parts = parts_of("observation.images.top")
    mixed = [*parts[:2], replace(parts[2], path=parts_of("observation.images.wrist")[2].path)]
    join_videos(mixed, tmp_path / "joined.mp4", rate=RATE)

    with pytest.raises(WriteError, match=r"the packets of .*top/episode_000002\.mp4"):
        compare_videos(parts[:3], tmp_path / "joined.mp4", RATE)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    """One bit of one packet is enough."""
    parts, joined = parts_of("observation.images.top"), tmp_path / "joined.mp4"
    join_videos(parts, joined, rate=RATE)
    content = bytearray(joined.read_bytes())
    packet = packets(parts[4].path)[-1][0]
    content[content.rindex(packet) + len(packet) - 1] ^= 1
    joined.write_bytes(content)

    with pytest.raises(WriteError, match=r"the packets of .*episode_000004\.mp4"):
        compare_videos(parts, joined, RATE)


@given(
    st.lists(st.floats(width=32, allow_nan=True), min_size=1, max_size=8),
    st.sampled_from([None, pa.list_, pa.large_list, partial(pa.list_, list_size=1)]),
)
def test_rows_are_compared_by_their_bits(
    numbers: list[float], list_of: Callable[[pa.DataType], pa.DataType] | None
) -> None:
    """NaN equals itself, and 0 differs from -0, at any depth and in any chunks."""
    values = np.array(numbers, np.float32)

    def table(of: np.ndarray[tuple[int], np.dtype[np.float32]]) -> pa.Table:
        column = pa.array(of)
        if list_of is not None:
            column = pa.array([[[x]] for x in of], list_of(list_of(pa.float32())))
        half = len(column) // 2
        return pa.table({"x": pa.chunked_array([column[:half], column[half:]], column.type)})

    assert has_equal_bits(table(values), table(values.copy()))
    changed = (values.view(np.int32) ^ 1).view(np.float32)
    assert not has_equal_bits(table(values), table(changed))
