# SPDX-License-Identifier: Apache-2.0
"""What was used lately, within a budget: the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key. For one thread. The newest is always held, however much it weighs.

    `has_evicted` says whether a value was ever let go for others.

    Args:
        budget: What all values may weigh together.
        weigh: What one value weighs; 1 unless given, so that the budget is a number of values.
        drop: Called with each value that is let go.
    """

    def __init__(
        self,
        budget: int,
        *,
        weigh: Callable[[V], int] = lambda _: 1,
        drop: Callable[[V], object] = lambda _: None,
    ) -> None:
        self.budget = budget
        self.weight = 0
        self.has_evicted = False
        self._evictions = 0
        self._weigh = weigh
        self._drop = drop
        self._values: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)  # the least recently used first

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value, which counts as used now; None if it is not held."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Hold a value, letting go of others where the budget asks for it, and return it."""
        self.forget(key)
        weight = self._weigh(value)
        for _ in self.make_room(weight):
            pass
        self._values[key] = value
        self.weight += weight
        return value

    def make_room(self, weight: int) -> Iterator[V]:
        """Yield what is let go of, the least recently used first, until `weight` more fits."""
        while self._values and self.weight + weight > self.budget:
            _, oldest = self._values.popitem(last=False)
            self._evictions += 1
            self.has_evicted = True
            self._let_go(oldest)
            yield oldest

    def take_evictions(self) -> int:
        """Return how many values were let go for others since the last call."""
        evictions, self._evictions = self._evictions, 0
        return evictions

    def forget(self, key: K) -> None:
        """Let go of one value, if it is held."""
        value = self._values.pop(key, None)
        if value is not None:
            self._let_go(value)

    def clear(self) -> None:
        """Let go of everything."""
        while self._values:
            self._let_go(self._values.popitem()[1])

    def _let_go(self, value: V) -> None:
        self.weight -= self._weigh(value)
        self._drop(value)
