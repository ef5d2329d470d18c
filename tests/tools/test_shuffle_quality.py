# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from robostream.errors import MissingExtraError
from robostream.plan import EpochPlan
from robostream.tools import ShuffleQuality, made_up_lengths, measure_methods, plot_qualities
from robostream.tools.shuffle_quality import (
    buffer_order,
    expected_distinct,
    measure,
    planned_order,
    pool_order,
    resident_episodes,
    simulated_distinct,
    smallest_pool,
    uniform_distinct,
    uniform_order,
)
from tests.parameters import long_except

SAWTOOTH = 50 + np.arange(600) * 37 % 200
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


def test_labels_of_the_plot_do_not_overlap(tmp_path: Path) -> None:
    """Of two points at one place, the second has no number; lines keep theirs apart by sides."""
    points = [
        ShuffleQuality("robostream", size, 1.0, diversity, gap, 0.0)
        for size, diversity, gap in ((4, 0.2, 4.0), (16, 0.5, 64.0), (17, 0.5, 64.0))
    ]
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot_qualities(points, 8, tmp_path / "shuffle.svg")
    labels = re.findall(r"fill: #1f77b4[^>]*>(\d+)<", (tmp_path / "shuffle.svg").read_text())

    assert labels == ["4", "16"]


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'robostream\[plot\]'"):
        plot_qualities([], 8, tmp_path / "shuffle.svg")


def plan_of(lanes: int, pool_size: int) -> EpochPlan:
    return EpochPlan(SAWTOOTH, seed=1, epoch=0, lanes=lanes, pool_size=pool_size)


def test_a_uniform_batch_has_the_episodes_of_independent_draws() -> None:
    """Two draws from two equal episodes are distinct half of the time; one draw always is."""
    assert uniform_distinct(np.array([10, 10]), 2) == pytest.approx(1.5)
    assert uniform_distinct(np.array([10, 10]), 1) == pytest.approx(1.0)
    assert uniform_distinct(np.array([7]), 64) == pytest.approx(1.0)


@pytest.mark.parametrize("batch_size", long_except([16, 64, 500], 64))
@pytest.mark.parametrize(("lanes", "pool_size"), [(1, 8), (8, 8), (48, 64), (48, 600), (700, 64)])
def test_what_is_expected_is_what_is_counted(lanes: int, pool_size: int, batch_size: int) -> None:
    """The closed form and the order itself agree to within a tenth."""
    plan = plan_of(lanes, pool_size)
    expected = expected_distinct(plan, batch_size, window=plan.window)

    assert simulated_distinct(plan, batch_size) == pytest.approx(expected, rel=0.1)


def test_a_rank_sees_the_episodes_of_its_lanes() -> None:
    """A rank's batch is counted with the step of its world size."""
    plan = plan_of(lanes=4, pool_size=4)

    assert simulated_distinct(plan, 64, step=4) < 4 < simulated_distinct(plan, 64)


@pytest.mark.parametrize("diversity", [0.3, 0.8, 0.95])
def test_the_smallest_pool_is_just_enough(diversity: float) -> None:
    """It reaches the wanted diversity, and one episode less does not."""
    plan = plan_of(lanes=12, pool_size=1)
    wanted = diversity * uniform_distinct(SAWTOOTH, 128)
    pool = smallest_pool(plan, 128, diversity=diversity)

    assert expected_distinct(plan, 128, window=plan.window_of(pool)) >= wanted
    assert expected_distinct(plan, 128, window=plan.window_of(pool - 1)) < wanted


def test_no_pool_is_larger_than_the_dataset() -> None:
    """Even the diversity of a uniform shuffle takes at most all episodes."""
    plan = EpochPlan([500, 500, 500], seed=0, epoch=0, lanes=1, pool_size=1)

    assert smallest_pool(plan, 9, diversity=1.0) == 3


@pytest.mark.parametrize(("lanes", "pool_size"), [(1, 20), (6, 20), (24, 64)])
def test_open_episodes_are_those_begun_and_not_finished(lanes: int, pool_size: int) -> None:
    """The count from windows agrees with one made from the order."""
    plan = plan_of(lanes, pool_size)
    episodes, _ = plan.slice(0, plan.num_frames)
    order = np.argsort(episodes, kind="stable")
    gaps = np.diff(order)[np.diff(episodes[order]) == 0]
    # By Little's law; gaps of an episode that the ends of the epoch part are not time spent open.
    counted = gaps[gaps < plan.num_frames / 2].sum() / plan.num_frames
    mean, most = resident_episodes(plan, range(lanes))

    assert mean == pytest.approx(counted, rel=0.15)
    assert mean <= most < 2 * mean


def test_ranks_share_the_open_episodes() -> None:
    """The lanes of two ranks together have what all lanes have, but for episodes in both."""
    plan = plan_of(lanes=24, pool_size=64)
    whole, _ = resident_episodes(plan, range(24))
    parts = [resident_episodes(plan, range(rank, 24, 2))[0] for rank in range(2)]

    assert whole <= sum(parts) <= whole + 24


def test_an_episode_in_many_lanes_is_open_once() -> None:
    """With more lanes than episodes, no more episodes are open than there are."""
    plan = EpochPlan([100, 100], seed=0, epoch=0, lanes=48, pool_size=64)

    assert resident_episodes(plan, range(48)) == (2.0, 2)
