# SPDX-License-Identifier: Apache-2.0
"""Pseudo-random 64-bit words that are the same on every platform: SplitMix64, by index.

A stream is an endless sequence of such words, named by its key. Word number i is computed from the
key and i alone: there is no state, and word 10^9 costs as much as word 0. All arithmetic is modulo
2^64, in Python integers for single words and in uint64 arrays for many.
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


@lru_cache(maxsize=256)  # the streams of all samples of an epoch have labels in common
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
