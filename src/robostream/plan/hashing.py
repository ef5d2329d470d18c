# SPDX-License-Identifier: Apache-2.0
"""Pseudo-random 64-bit words and permutations, the same on every platform, computed by index.

The words are those of SplitMix64. A stream is an endless sequence of them, named by its key. Word
number i is a function of the key and i alone: there is no state, and word 10^9 costs as much as
word 0. All arithmetic is modulo 2^64, in Python integers for single words and in uint64 arrays for
many.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_FEISTEL_ROUNDS: Final = 8


@lru_cache(maxsize=256)  # the streams of all samples of an epoch share labels
def word(key: int, index: int) -> int:
    """Return word number `index` of the stream `key`. Pure."""
    state = (key + (index + 1) * _STEP) & _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)


def words(key: int | Words, index: Ints) -> Words:
    """Return the words number `index` of the stream `key`, or of one stream per index. Pure.

    Words of one stream at different indices differ: the map is a bijection of 64-bit integers.
    """
    state = index.astype(np.uint64)
    state += np.uint64(1)
    state *= np.uint64(_STEP)
    state += np.uint64(key) if isinstance(key, int) else key
    state ^= state >> np.uint64(30)
    state *= np.uint64(_FIRST)
    state ^= state >> np.uint64(27)
    state *= np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    return state


def stream(*labels: int) -> int:
    """Return the key of the stream named by `labels`, each any integer. Pure."""
    key = 0
    for label in labels:
        key = word(key ^ word(label & _MASK, 0), 0)
    return key


def below(bound: int | Ints, random_words: Words) -> Ints:
    """Return an integer in [0, bound) per word, from its upper half; bound <= 2^32. Pure."""
    scaled = (random_words >> np.uint64(32)) * np.asarray(bound, dtype=np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def hash_order(ids: Ints, key: int) -> Ints:
    """Return the indices that sort distinct `ids` by their words in the stream `key`. Pure.

    Which of two ids comes first depends on these two and the key alone. So the episodes of a
    selection come in the same order as they do in the whole dataset. Takes O(n log n) time and
    O(n) memory.
    """
    return np.argsort(words(key, ids))


def permute(indices: Ints, length: int, key: int) -> Ints:
    """Return where the bijection of [0, length) named by `key` sends `indices`. Pure.

    A Feistel network over the smallest power of two that holds `length`, with cycle walking: a
    result outside [0, length) is permuted again until it falls inside. It stores no permutation, so
    one index costs the same at any length.
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
    left, right = values >> np.uint64(low), values & np.uint64((1 << low) - 1)
    for round_number in range(_FEISTEL_ROUNDS):
        scrambled = words(stream(key, round_number), right.astype(np.int64))
        left, right = right, left ^ (scrambled & np.uint64((1 << high) - 1))
        low, high = high, low
    return (left << np.uint64(low)) | right
