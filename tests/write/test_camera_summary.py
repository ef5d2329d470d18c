# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robostream.write.camera_summary import (
    COLOUR_SUMMARY,
    DEPTH_SUMMARY,
    colour_stats,
    depth_stats,
    sampled_frames,
    summarise_colour,
    summarise_depth,
)
from robostream.write.episode_stats import NAMES, QUANTILES, column_stats

IMAGES = Path(__file__).parents[1] / "fixtures" / "images"


@given(length=st.integers(1, 300_000))
def test_sampled_frames_span_the_episode(length: int) -> None:
    """All of a short episode, ever fewer of a long one, never above 10,000, ends included."""
    frames = sampled_frames(length)

    assert len(frames) == max(min(100, length), min(int(length**0.75), 10_000))
    assert frames[0] == 0
    assert frames[-1] == (length - 1 if length > 1 else 0)
    assert (np.diff(frames) > 0).all()


@given(seed=st.integers(0, 1000), count=st.integers(1, 5))
def test_colour_statistics_are_exact(seed: int, count: int) -> None:
    """Histograms lose nothing: the statistics are those of all pixels of all images."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, rng.integers(1, 256) + 1, (count, 7, 9, 3)).astype(np.uint8)
    found = colour_stats(np.array([summarise_colour(image) for image in images]))
    want = column_stats(images.reshape(-1, 3) / 255)

    for name in set(NAMES) - {"count"}:
        np.testing.assert_allclose(found[name].ravel(), want[name], atol=1e-9)
        assert found[name].shape == (3, 1, 1)
    assert found["count"].tolist() == [count]


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_depth_statistics_keep_the_unit(dtype: str) -> None:
    """Moments are exact, quantiles right to a 4096th of the pixels."""
    rng = np.random.default_rng(0)
    images = (rng.random((6, 100, 130)) * 3000).astype(dtype)
    found = depth_stats(np.array([summarise_depth(image) for image in images]))
    pixels = images.reshape(-1, 1).astype(np.float64)

    for name in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(found[name].ravel(), column_stats(pixels)[name], rtol=1e-9)
    for name, share in QUANTILES.items():
        assert abs((pixels <= found[name].item()).mean() - share) < 2 / 4096
    assert found["mean"].shape == (1, 1, 1)


@pytest.mark.parametrize(
    ("height", "width", "step"), [(299, 299, 1), (300, 100, 2), (480, 640, 4), (1080, 1920, 12)]
)
def test_large_images_are_strided(height: int, width: int, step: int) -> None:
    """From 300 pixels on, every k-th row and column counts, so that about 150 remain."""
    image = np.random.default_rng(1).integers(0, 256, (height, width, 3)).astype(np.uint8)
    chosen = image[::step, ::step]

    np.testing.assert_array_equal(summarise_colour(image), summarise_colour(chosen.copy()))
    assert summarise_colour(image).sum() == chosen.size


def test_summaries_survive_the_scratch_file() -> None:
    """A summary has exactly the bytes its dtype says, which is how it is read back."""
    colour = summarise_colour(np.zeros((4, 4, 3), np.uint8))
    depth = summarise_depth(np.zeros((4, 4), np.float32))

    assert len(colour.tobytes()) == COLOUR_SUMMARY.itemsize
    assert len(depth.tobytes()) == DEPTH_SUMMARY.itemsize


def test_camera_statistics_are_those_lerobot_recorded() -> None:
    """Each episode of the fixture: equal to LeRobot's float32 sums, quantiles to a bin."""
    table = pq.ParquetFile(IMAGES / "data/chunk-000/file-000.parquet").read().to_pylist()
    episodes = pq.ParquetFile(IMAGES / "meta/episodes/chunk-000/file-000.parquet").read()
    key = "observation.images.top"
    for episode in episodes.to_pylist():
        mine = [r[key]["bytes"] for r in table if r["episode_index"] == episode["episode_index"]]
        images = [np.asarray(Image.open(io.BytesIO(content))) for content in mine]
        stats = colour_stats(np.array([summarise_colour(image) for image in images]))
        for name in NAMES:
            want = np.array(episode[f"stats/{key}/{name}"], float)

            np.testing.assert_allclose(stats[name], want, atol=3e-4)
