# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from robostream.plan import EpochPlan
from robostream.tools.diversity import (
    expected_distinct,
    resident_episodes,
    simulated_distinct,
    smallest_pool,
    uniform_distinct,
)

LENGTHS = 50 + np.arange(600) * 37 % 200


def plan_of(lanes: int, pool_size: int) -> EpochPlan:
    return EpochPlan(LENGTHS, seed=1, epoch=0, lanes=lanes, pool_size=pool_size)


def test_a_uniform_batch_has_the_episodes_of_independent_draws() -> None:
    """Two draws from two equal episodes are distinct half of the time; one draw always is."""
    assert uniform_distinct(np.array([10, 10]), 2) == pytest.approx(1.5)
    assert uniform_distinct(np.array([10, 10]), 1) == pytest.approx(1.0)
    assert uniform_distinct(np.array([7]), 64) == pytest.approx(1.0)


@pytest.mark.parametrize("batch_size", [16, 64, 500])
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
    wanted = diversity * uniform_distinct(LENGTHS, 128)
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
