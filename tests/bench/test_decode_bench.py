# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench decode` on small files."""

from __future__ import annotations

from robostream.bench import decode
from robostream.decode import build_index
from robostream.storage import LocalSource
from robostream.tools import SynthSpec
from tests.fixture_datasets import FIXTURES

WAYS = {
    "at random, decoding alone",
    "at random, nothing kept",
    "at random, room for all",
    "at random, all kept",
    "in order",
}


def small_videos() -> decode.VideoSet:
    """Return one camera of a fixture."""
    files = sorted((FIXTURES / "av1_multifile" / "videos").glob("*top/*/*.mp4"))
    indices = [build_index(LocalSource(file)) for file in files]
    config = indices[0].configs[0]
    spec = SynthSpec(episodes=1, gop=2, width=config.width, height=config.height)
    samples = [
        [(str(file), frame)]
        for file, index in zip(files, indices, strict=True)
        for frame in range(index.num_frames)
    ]
    return decode.VideoSet(spec, samples)


def test_each_way_to_read_is_measured() -> None:
    """Rates are positive; cached frames are not decoded again, frames in order hardly ever."""
    rows = {row["read"]: row for row in decode._measure(small_videos(), rounds=1)}

    assert rows.keys() == WAYS
    assert all(row["images_per_s"] > 0 < row["over_floor"] for row in rows.values())
    assert 1 < rows["at random, nothing kept"]["amplification"] <= 1.6
    assert rows["at random, room for all"]["amplification"] <= 1.5
    assert rows["at random, all kept"]["amplification"] == 0
    assert rows["in order"]["amplification"] < 1.5


def test_conversion_and_keeping_are_timed() -> None:
    """Each cost is a number of microseconds."""
    costs = decode._costs(small_videos().files[0])

    assert set(costs) == {"convert", "convert to float32", "keep", "convert a kept one"}
    assert all(0 < cost < 10_000 for cost in costs.values())
