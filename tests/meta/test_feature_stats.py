# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from robostream.meta import aggregate_stats
from robostream.meta.stats import (
    COLOUR,
    DEPTH,
    MOMENTS,
    QUANTILES,
    colour_stats,
    column_stats,
    depth_stats,
    merge_depth,
    sampled_frames,
    summarise_colour,
    summarise_depth,
)

NAMES = (*MOMENTS, *QUANTILES)
FIXTURES = Path(__file__).parents[1] / "fixtures"
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=6)
VALUES = hnp.arrays(np.float64, SHAPES, elements=st.floats(-1e6, 1e6))


@given(values=VALUES)
def test_statistics_are_taken_per_entry_of_the_last_axis(values: np.ndarray) -> None:
    """min, max, mean and std are numpy's over all axes but the last; count is the frames."""
    stats = column_stats(values)
    flat = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[:, None]

    np.testing.assert_array_equal(stats["min"], flat.min(axis=0))
    np.testing.assert_array_equal(stats["max"], flat.max(axis=0))
    np.testing.assert_allclose(stats["mean"], flat.mean(axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(stats["std"], flat.std(axis=0), rtol=1e-9, atol=1e-6)
    assert stats["count"].tolist() == [len(values)]


@given(values=VALUES)
def test_a_quantile_is_the_first_value_that_reaches_its_share(values: np.ndarray) -> None:
    """At least the share q of values is up to it, and fewer are below it."""
    stats = column_stats(values)
    flat = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[:, None]
    for name, share in QUANTILES.items():
        assert ((flat <= stats[name]).sum(axis=0) >= share * len(flat)).all()
        assert ((flat < stats[name]).sum(axis=0) <= max(share * len(flat), 0)).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float32"])
def test_one_frame_gives_floats_of_the_same_shape_as_many(dtype: str) -> None:
    """The episode table has one type per column, whatever the dtype and length of an episode."""
    many = column_stats(np.ones((5, 2, 3), dtype))
    one = column_stats(np.ones((1, 2, 3), dtype))

    assert {name: (v.dtype, v.shape) for name, v in one.items()} == {
        name: (v.dtype, v.shape) for name, v in many.items()
    }
    assert all(one[name].dtype == np.float64 for name in NAMES if name != "count")


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_episodes_together_have_the_statistics_of_all_frames(lengths: list[int], seed: int) -> None:
    """Mean, std, min, max and count are exact; quantiles enclose the true ones."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(rng.normal(), 1, (n, 3)) for n in lengths]
    together = aggregate_stats([{"x": column_stats(part)} for part in parts])["x"]
    whole = column_stats(np.concatenate(parts))

    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(together[name], whole[name], rtol=1e-9, atol=1e-12)
    for name, share in QUANTILES.items():
        outside = together[name] <= whole[name] if share <= 0.5 else together[name] >= whole[name]
        assert outside.all()


def lerobot_rows(dataset: str) -> list[dict[str, Any]]:
    files = sorted((FIXTURES / dataset / "meta/episodes").glob("*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.mark.parametrize("dataset", ["av1_multifile", "depth"])
def test_statistics_are_those_lerobot_recorded(dataset: str) -> None:
    """Every column of every episode: equal but for float noise, quantiles to one of 5000 bins."""
    files = sorted((FIXTURES / dataset / "data").glob("*/*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    for episode in lerobot_rows(dataset):
        mine = [row for row in rows if row["episode_index"] == episode["episode_index"]]
        for name in ("observation.state", "action", "next.done", "frame_index", "index"):
            stats = column_stats(np.array([row[name] for row in mine]))
            spread = np.maximum(stats["max"] - stats["min"], 1e-6)
            for kind in NAMES:
                want = np.array(episode[f"stats/{name}/{kind}"], float)
                allowed = 1.01 / 5000 if kind in QUANTILES else 1e-4

                assert (np.abs(stats[kind] - want) / spread).max() <= allowed, (name, kind)


def test_nothing_aggregates_to_nothing() -> None:
    """No episodes have no statistics."""
    assert aggregate_stats([]) == {}


def test_quantiles_that_a_part_lacks_are_left_out() -> None:
    """Older datasets have no quantiles; mean and std are still exact."""
    old = {k: v for k, v in column_stats(np.arange(4.0)).items() if k not in QUANTILES}
    together = aggregate_stats([{"x": old}, {"x": column_stats(np.arange(4.0, 8.0))}])["x"]

    assert set(together) == set(NAMES) - set(QUANTILES)
    assert together["mean"].tolist() == [3.5]


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


def test_merged_depth_images_count_as_many_as_they_are() -> None:
    """Moments of unequal groups are exact, quantiles nearly those of all images."""
    rng = np.random.default_rng(0)
    groups = [rng.random((count, 60, 80)) * (count + 1) for count in (1, 6, 2)]
    summaries = [np.array([summarise_depth(i.astype(np.float32)) for i in g]) for g in groups]
    merged = depth_stats(np.array([merge_depth(s) for s in summaries]), [1, 6, 2])
    whole = depth_stats(np.concatenate(summaries))

    for name in MOMENTS:
        np.testing.assert_allclose(merged[name], whole[name], rtol=1e-9)
    for name in QUANTILES:
        assert abs(merged[name].item() - whole[name].item()) < 0.01


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

    assert len(colour.tobytes()) == COLOUR.dtype.itemsize
    assert len(depth.tobytes()) == DEPTH.dtype.itemsize


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
