# SPDX-License-Identifier: Apache-2.0
"""Permutations of [0, n) from a key: one that is stored, one computed an element at a time."""

from __future__ import annotations

import numpy as np

from robostream.plan.mix import Ints, Words, stream, words

_ROUNDS = 8


def hash_order(ids: Ints, key: int) -> Ints:
    """Return the indices that sort distinct `ids` by their words in the stream `key`. Pure.

    Which of two ids comes first depends on these two and the key alone. So the episodes of a
    selection come in the same order as they do in the whole dataset. Takes O(n log n) time and
    O(n) memory.
    """
    return np.argsort(words(key, ids))


def permute(indices: Ints, length: int, key: int) -> Ints:
    """Return where the bijection of [0, length) named by `key` sends `indices`. Pure.

    A Feistel network over the smallest power of two that holds `length`; a result outside
    [0, length) is put in again until one falls inside. It needs no memory beyond the answer, so one
    index costs the same in a permutation of any size.
    """
    if length < 1 or (indices.size and not 0 <= indices.min() <= indices.max() < length):
        raise ValueError(f"want indices in [0, {length}) of a length of at least 1")
    bits = max(2, (length - 1).bit_length())
    result = _feistel(indices.astype(np.uint64), bits, key)
    outside = np.flatnonzero(result >= length)
    while outside.size:
        result[outside] = _feistel(result[outside], bits, key)
        outside = outside[result[outside] >= length]
    return result.astype(np.int64)


def _feistel(values: Words, bits: int, key: int) -> Words:
    # One half may be a bit wider than the other. They swap widths each round, so after an even
    # number of rounds each has its own width again.
    low = bits // 2
    high = bits - low
    left, right = values >> np.uint64(low), values & _ones(low)
    for round_number in range(_ROUNDS):
        scrambled = words(stream(key, round_number), right.astype(np.int64))
        left, right = right, left ^ (scrambled & _ones(high))
        low, high = high, low
    return (left << np.uint64(low)) | right


def _ones(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
