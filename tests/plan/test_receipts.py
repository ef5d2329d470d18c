# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import digest, format_receipt
from robostream.plan.epoch import pair_digests
from tests.plan.spec import key_of, split_mix

PAIRS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6)), max_size=50)


def digest_of(pairs: list[tuple[int, int]]) -> int:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return digest(array[:, 0], array[:, 1])


@given(pairs=PAIRS)
def test_a_digest_is_a_sum_of_products_of_words(pairs: list[tuple[int, int]]) -> None:
    """The definition, in Python integers; the order of the pairs does not matter."""
    episode_key, frame_key = key_of(0x45504953), key_of(0x4652414D)
    expected = sum(split_mix(episode_key, e) * split_mix(frame_key, f) for e, f in pairs) % 2**64

    assert digest_of(pairs) == digest_of(pairs[::-1]) == expected


@given(first=PAIRS, second=PAIRS)
def test_digests_add_up(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    """Ranks add up to the global batch, batches to the epoch."""
    together = digest_of(first + second)

    assert (digest_of(first) + digest_of(second)) % 2**64 == together


def test_near_pairs_have_unlike_digests() -> None:
    """No two of a million pairs that training might mix up share a digest."""
    episodes, frames = np.divmod(np.arange(1_000_000), 1000)

    assert np.unique(pair_digests(episodes, frames)).size == 1_000_000


def test_exchanged_frames_are_noticed() -> None:
    """Swapping frame numbers between two episodes changes the digest."""
    assert digest_of([(1, 5), (2, 9)]) != digest_of([(1, 9), (2, 5)])
    assert digest_of([(1, 1), (1, 4)]) != digest_of([(1, 2), (1, 3)])


def test_receipts_are_written_as_sixteen_digits() -> None:
    """A receipt is formatted modulo 2^64, from any integer."""
    assert format_receipt(255) == "00000000000000ff"
    assert format_receipt(-1) == "f" * 16
