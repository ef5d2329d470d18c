# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from robostream.errors import MissingExtraError
from robostream.tools import ShuffleQuality, made_up_lengths, measure_methods, plot_qualities
from robostream.tools.shuffle_quality import (
    buffer_order,
    measure,
    planned_order,
    pool_order,
    uniform_order,
)

LENGTHS = made_up_lengths(300, 60, seed=3)


def quality_of(order: np.ndarray, pool_size: int = 8) -> ShuffleQuality:
    return measure(order, LENGTHS, method="", pool_size=pool_size, batch_size=32)


@pytest.mark.parametrize(
    "order",
    [
        planned_order(LENGTHS, 8, lanes=4, seed=1),
        pool_order(LENGTHS, 8, seed=1),
        buffer_order(LENGTHS, 8, seed=1),
        uniform_order(LENGTHS, seed=1),
    ],
)
def test_every_method_delivers_every_frame_once(order: np.ndarray) -> None:
    """All are orders of the same dataset, so their qualities can be compared."""
    assert np.array_equal(np.sort(order), np.arange(LENGTHS.sum()))


def test_the_pool_is_never_larger_than_it_says() -> None:
    """An episode leaves the simulated pool before the next one enters."""
    episodes = np.repeat(np.arange(LENGTHS.size), LENGTHS)[pool_order(LENGTHS, 8, seed=1)]
    positions = np.arange(episodes.size)
    first = np.full(LENGTHS.size, episodes.size)
    np.minimum.at(first, episodes, positions)
    last = np.zeros(LENGTHS.size, dtype=int)
    np.maximum.at(last, episodes, positions)
    open_at = [int(((first <= p) & (last >= p)).sum()) for p in range(0, episodes.size, 101)]

    assert max(open_at) == 8


def test_dataset_order_is_no_shuffle() -> None:
    """Unshuffled, a batch is one or two episodes, its frames adjacent, its place the dataset's."""
    quality = quality_of(np.arange(LENGTHS.sum()))

    assert 1 < quality.distinct < 2
    assert quality.gap == 1
    assert quality.correlation == pytest.approx(1)


def test_a_uniform_order_is_as_diverse_as_expected() -> None:
    """The measure of a uniform permutation is the expectation it is compared with."""
    quality = quality_of(uniform_order(LENGTHS, seed=2))

    assert quality.diversity == pytest.approx(1, abs=0.01)
    assert quality.gap == pytest.approx(300, rel=0.1)
    assert abs(quality.correlation) < 0.03


def test_lanes_give_more_diversity_for_the_same_price() -> None:
    """With no more episodes open than the reference's pool has, our batches mix more of them."""
    ours = quality_of(planned_order(LENGTHS, 8, lanes=16, seed=0))
    reference = quality_of(pool_order(LENGTHS, 26, seed=0))

    assert ours.gap <= reference.gap
    assert ours.diversity > 1.2 * reference.diversity


def test_single_frames_have_no_gap_to_measure() -> None:
    """Where no episode has two frames, the gap is the epoch."""
    quality = measure(
        np.array([2, 0, 1]), np.array([1, 1, 1]), method="", pool_size=1, batch_size=64
    )

    assert (quality.gap, quality.distinct) == (3, 3)


def test_the_table_has_every_method_and_pool() -> None:
    """Three methods at each pool size, and the uniform shuffle once."""
    table = list(measure_methods(LENGTHS, batch_size=8, lanes=4, pool_sizes=[4, 9], seed=0))

    assert [(row.method, row.pool_size) for row in table] == [
        *(("robostream", 4), ("robostream", 9)),
        *(("reference pool", 4), ("reference pool", 9)),
        *(("shuffle buffer", 4), ("shuffle buffer", 9)),
        ("uniform", 300),
    ]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    """The plot is an SVG that names the methods."""
    table = list(measure_methods(LENGTHS, batch_size=8, lanes=4, pool_sizes=[4, 9], seed=0))
    plot_qualities(table, 8, tmp_path / "shuffle.svg")

    assert "reference pool" in (tmp_path / "shuffle.svg").read_text()


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'robostream\[plot\]'"):
        plot_qualities([], 8, tmp_path / "shuffle.svg")
