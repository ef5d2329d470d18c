# SPDX-License-Identifier: Apache-2.0
"""A least-recently-used cache with a weight budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key, for one thread. The newest value stays, however much it weighs.

    Args:
        budget: The total weight of all values.
        weigh: Returns the weight of a value; by default 1, so that the budget counts values.
        drop: Called with each value that leaves the cache.

    Attributes:
        has_evicted: Whether a value was ever evicted to make space for another.
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
        """Return a value and mark it as used; None if it is missing."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Add a value, evicting others as the budget requires, and return it."""
        self.forget(key)
        weight = self._weigh(value)
        for _ in self.evict_for(weight):
            pass
        self._values[key] = value
        self.weight += weight
        return value

    def evict_for(self, weight: int) -> Iterator[V]:
        """Evict and yield values, the least recently used first, until `weight` more fits."""
        while self._values and self.weight + weight > self.budget:
            _, oldest = self._values.popitem(last=False)
            self._evictions += 1
            self.has_evicted = True
            self._remove(oldest)
            yield oldest

    def take_evictions(self) -> int:
        """Return the number of evictions since the last call."""
        evictions, self._evictions = self._evictions, 0
        return evictions

    def forget(self, key: K) -> None:
        """Remove a value if it is there."""
        value = self._values.pop(key, None)
        if value is not None:
            self._remove(value)

    def clear(self) -> None:
        """Remove all values."""
        while self._values:
            self._remove(self._values.popitem()[1])

    def _remove(self, value: V) -> None:
        self.weight -= self._weigh(value)
        self._drop(value)
