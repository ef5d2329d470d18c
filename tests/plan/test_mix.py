# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan.mix import below, stream, word, words

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
