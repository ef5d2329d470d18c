# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import WorkerShard

workers_and_cameras = st.tuples(st.integers(1, 17), st.integers(0, 7))


def crew(num_workers: int, num_cameras: int) -> list[WorkerShard]:
    """Return the duties of all workers."""
    return [WorkerShard(worker, num_workers, num_cameras) for worker in range(num_workers)]


@given(sizes=workers_and_cameras, number=st.integers(0, 10_000))
def test_every_part_has_one_owner(sizes: tuple[int, int], number: int) -> None:
    """The cameras and the rows of any lane, and of any sample of no lane, are dealt out once."""
    workers = crew(*sizes)
    all_cameras = list(range(sizes[1]))

    assert sorted(c for duties in workers for c in duties.cameras(number)) == all_cameras
    assert sorted(c for duties in workers for c in duties.extra_cameras(number)) == all_cameras
    assert sum(duties.owns_rows(number) for duties in workers) == 1


@given(sizes=workers_and_cameras, lanes=st.integers(0, 100))
def test_loads_differ_by_at_most_one(sizes: tuple[int, int], lanes: int) -> None:
    """With any number of lanes, workers differ by at most one pair, and by one lane's rows."""
    workers = crew(*sizes)
    pairs = [sum(len(duties.cameras(lane)) for lane in range(lanes)) for duties in workers]
    rows = [sum(duties.owns_rows(lane) for lane in range(lanes)) for duties in workers]

    assert max(pairs) - min(pairs) <= 1
    assert max(rows) - min(rows) <= 1


@given(num_workers=st.integers(1, 12), num_cameras=st.integers(1, 7))
def test_each_camera_is_spread_over_all_workers(num_workers: int, num_cameras: int) -> None:
    """After enough lanes each worker has each camera equally often: cameras may differ in cost."""
    lanes = num_workers // gcd(num_cameras, num_workers) * num_cameras
    met = Counter(
        (duties.worker, camera)
        for duties in crew(num_workers, num_cameras)
        for lane in range(lanes)
        for camera in duties.cameras(lane)
    )

    assert len(met) == num_workers * num_cameras
    assert len(set(met.values())) == 1


def test_a_worker_that_is_none_is_refused() -> None:
    """Numbers count from 0 to below the number of workers."""
    for numbers in ((2, 2, 3), (-1, 2, 3), (0, 0, 3), (0, 1, -1)):
        with pytest.raises(ValueError, match="want 0 <= worker < num_workers"):
            WorkerShard(*numbers)
