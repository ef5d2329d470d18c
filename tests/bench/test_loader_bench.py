# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench loader`, its floors and loaders, on a small dataset."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robostream.bench.loader import frame_memory, measure_plain, measure_robostream
from robostream.bench.loaders import PlainDataset, pyav_reader
from robostream.bench.measure import BenchCase
from robostream.bench.meta import measure_resume
from robostream.bench.plan import simulate
from robostream.bench.processes import decode_floor, resident_bytes, run_process, touch_memory
from robostream.dataset import LeRobotDataset
from tests.bench.runs import case_of
from tests.fixture_datasets import FIXTURES
from tests.parameters import long_except

ROOT = FIXTURES / "av1_multifile"
CAMERAS = ["observation.images.top", "observation.images.wrist"]


def fixture_case(**options: Any) -> BenchCase:
    """Return a case with one worker and small batches."""
    return case_of(ROOT, batch_size=8, workers=1, **options)


@pytest.mark.parametrize("window_s", long_except([[0.0], [-0.2, 0.0]], [0.0]))
@pytest.mark.parametrize("function", [measure_plain, measure_robostream])
def test_each_loader_runs_and_counts(function: Callable[..., Any], window_s: list[float]) -> None:
    """Figures are JSON values; robostream decodes each image at most once in two epochs."""
    limit = {"seconds": 0.0} if function is measure_robostream else {}
    figures = run_process(function, case=fixture_case(window_s=tuple(window_s)), **limit)

    assert figures["images_per_s"] > 0
    assert figures["first_batch_s"] > 0
    if function is measure_robostream:
        assert figures["amplification"] <= 1.0 / len(window_s)
        assert figures["tree_bytes"] > 10**7


@pytest.mark.long
def test_memory_is_known_and_touched_before_a_run() -> None:
    """The budget of decoded frames is known, and touched memory is freed."""
    before = resident_bytes()
    case = fixture_case(options={"frame_cache_bytes": "1MiB"})

    assert run_process(frame_memory, case=case) == 1 << 20
    assert touch_memory(64 << 20) > 0
    assert resident_bytes() < before + (32 << 20)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_floors_decode_every_image(processes: int) -> None:
    """Both floors return a rate."""
    files = sorted(str(path) for path in ROOT.glob("videos/**/*.mp4"))

    assert decode_floor(files, processes) > 0
    assert decode_floor(files, processes, at_random=True) > 0


def test_workers_of_a_full_node_are_kept_busy() -> None:
    """On a large dataset, the workers of 8 ranks of 16 are busy most of the time."""
    figures = simulate(50_000, 3, 8, 16, steps=100)

    assert figures["lanes"] % 8 == 0
    assert figures["pairs, most"] - figures["pairs, least"] <= 1
    assert figures["share of time used"] > 0.9


def test_the_plain_loader_reads_the_right_images() -> None:
    """Its pixels are within two levels of ours."""
    peer = PlainDataset(fixture_case(), pyav_reader())
    ours = LeRobotDataset("some/name", root=ROOT, return_uint8=True)
    for item in (0, 16, 17, 40, 61):
        for key in CAMERAS:
            gap = np.abs(peer[item][key].numpy().astype(int) - ours[item][key].numpy().astype(int))

            assert gap.max() <= 2
    # A worker that is forked later would hang if it freed these decoders: it lacks their threads.
    del peer
    gc.collect()


@pytest.mark.long
def test_resume_is_measured_at_several_positions() -> None:
    """The table has a row for each position, and the figures are seconds."""
    figures, text = measure_resume(frames=30_000, rounds=1)

    assert list(figures) == ["0%", "50%", "90%"]
    assert all(0 < seconds < 60 for seconds in figures.values())
    assert "over start" in text
