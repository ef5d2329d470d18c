# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan.hashing import below, hash_order, permute, stream, word, words

KEYS = st.integers(0, 2**64 - 1)


def test_the_words_are_those_of_splitmix64() -> None:
    """The first outputs of SplitMix64 with seed 0, as its authors publish them."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]

    assert [word(0, index) for index in range(3)] == expected
    assert words(0, np.arange(3)).tolist() == expected


@given(key=KEYS, indices=st.lists(st.integers(0, 2**40), min_size=1))
def test_many_words_are_the_single_words(key: int, indices: list[int]) -> None:
    """Arrays and Python integers agree, with one key for all or one key each."""
    expected = [word(key, index) for index in indices]
    index = np.array(indices)

    assert words(key, index).tolist() == expected
    assert words(np.full(index.size, key, dtype=np.uint64), index).tolist() == expected


@given(bound=st.integers(1, 2**32), key=KEYS)
def test_below_stays_below(bound: int, key: int) -> None:
    """Integers drawn below a bound are never negative and never reach it."""
    drawn = below(bound, words(key, np.arange(100)))
    extremes = below(bound, np.array([0, 2**64 - 1], dtype=np.uint64))

    assert 0 <= drawn.min() <= drawn.max() < bound
    assert extremes.tolist() == [0, bound - 1]


def test_streams_tell_labels_apart() -> None:
    """Order, number and sign of the labels matter."""
    names = [(), (0,), (0, 0), (1,), (-1,), (1, 2), (2, 1), (1, 2, 3)]

    assert len({stream(*labels) for labels in names}) == len(names)


@given(length=st.integers(1, 3000), key=KEYS)
def test_permute_is_a_bijection(length: int, key: int) -> None:
    """Every place of [0, length) is reached exactly once."""
    images = permute(np.arange(length), length, key)

    assert sorted(images.tolist()) == list(range(length))


@given(length=st.integers(2, 10**15), key=KEYS, index=st.integers(0, 10**15))
def test_one_place_needs_no_other(length: int, key: int, index: int) -> None:
    """A single index goes where it goes among others, at any size."""
    some = np.array([index % length, 0, length - 1])
    together = permute(some, length, key)

    assert all(0 <= image < length for image in together.tolist())
    assert permute(some[:1], length, key)[0] == together[0]


def test_permute_visits_all_orders_alike() -> None:
    """Of the 24 orders of 4 places, each comes up about as often as the others."""
    counts: dict[tuple[int, ...], int] = {}
    for key in range(2400):
        order = tuple(permute(np.arange(4), 4, key).tolist())
        counts[order] = counts.get(order, 0) + 1
    chi_square = sum((count - 100) ** 2 / 100 for count in counts.values())

    assert len(counts) == 24
    assert chi_square < 49.7  # 23 degrees of freedom, one in a thousand


@pytest.mark.parametrize(("indices", "length"), [([5], 5), ([-1], 5), ([0], 0)])
def test_indices_outside_are_refused(indices: list[int], length: int) -> None:
    """An index outside of [0, length) is an error."""
    with pytest.raises(ValueError, match="want indices in"):
        permute(np.array(indices), length, 1)


@given(ids=st.sets(st.integers(0, 10**6), min_size=2), key=KEYS, data=st.data())
def test_a_selection_keeps_the_order_of_the_whole(
    ids: set[int], key: int, data: st.DataObject
) -> None:
    """Dropping ids does not change which of two others comes first."""
    kept = data.draw(st.sets(st.sampled_from(sorted(ids)), min_size=1))
    everything, some = np.array(sorted(ids)), np.array(sorted(kept))
    whole = everything[hash_order(everything, key)]

    assert some[hash_order(some, key)].tolist() == [x for x in whole.tolist() if x in kept]
