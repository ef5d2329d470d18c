# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from robostream.write import EpisodeFile
from robostream.write.saved_episodes import MB, FilePlace, FileTotals

EPISODES = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 5_000)), min_size=1, max_size=40)


def video_files(sizes: list[int], parameters: list[str], limit: float) -> list[FileTotals]:
    """The open file after each episode of the given size."""
    current = FileTotals(FilePlace(0, 0))
    files = []
    for size, kind in zip(sizes, parameters, strict=True):
        file = EpisodeFile(Path("video.mp4"), size, 1, parameters=kind)
        current = current.with_file(file, expected_bytes=size, limit_mb=limit / MB, chunks_size=3)
        files.append(current)
    return files


@given(chunks_size=st.integers(1, 50), steps=st.integers(0, 200))
def test_places_count_through_the_chunks(chunks_size: int, steps: int) -> None:
    """The n-th file lies in chunk n div chunks_size, at place n mod chunks_size."""
    place = FilePlace(0, 0)
    for _ in range(steps):
        place = place.after(chunks_size)

    assert (place.chunk, place.file) == divmod(steps, chunks_size)


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=60), limit=st.floats(1, 5000))
def test_videos_stay_below_the_limit_and_fill_up_to_it(sizes: list[int], limit: float) -> None:
    """A file reaches the limit only if it holds one episode; the next one would have reached it."""
    files = video_files(sizes, ["same"] * len(sizes), limit)
    groups = [list(group) for _, group in groupby(files, key=lambda f: f.place)]

    assert all(len(group) == 1 or group[-1].size_bytes < limit for group in groups)
    assert all(a[-1].size_bytes + b[0].size_bytes >= limit for a, b in pairwise(groups))


@given(kinds=st.lists(st.sampled_from("ab"), min_size=1, max_size=30))
def test_videos_with_other_codec_parameters_get_another_file(kinds: list[str]) -> None:
    """A file never mixes codec parameters, and a change of them is the only reason to leave one."""
    files = video_files([1] * len(kinds), kinds, limit=1e9)
    changes = [(a.place != b.place, a.parameters != b.parameters) for a, b in pairwise(files)]

    assert all(moved == differs for moved, differs in changes)


@given(episodes=EPISODES, limit=st.floats(1, 50_000))
def test_rows_roll_over_by_the_size_the_episode_is_guessed_to_have(
    episodes: list[tuple[int, int]], limit: float
) -> None:
    """A Parquet file is closed by size + size / frames * new frames >= limit, and only by that."""
    current = FileTotals(FilePlace(0, 0))
    for frames, size in episodes:
        estimate = current.estimate_bytes(frames)
        file = EpisodeFile(Path("rows.parquet"), size, frames)
        after = current.with_file(file, expected_bytes=estimate, limit_mb=limit / MB, chunks_size=3)
        size_now, frames_now = current.size_bytes, current.num_frames
        full = frames_now > 0 and size_now + size_now / frames_now * frames >= limit

        assert (after.place != current.place) == full
        assert after.num_frames == frames + (0 if full else frames_now)

        current = after
