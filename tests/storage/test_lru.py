# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from robostream.storage import LruCache

STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "forget"]), st.integers(0, 5), st.integers(1, 9))
)


@given(steps=STEPS, budget=st.integers(0, 20))
def test_the_least_recently_used_go_first(steps: list[tuple[str, int, int]], budget: int) -> None:
    """Contents, weight and evictions equal those of a bounded ordered dict."""
    dropped: list[int] = []
    recent: LruCache[int, int] = LruCache(budget, weigh=lambda value: value, drop=dropped.append)
    model: OrderedDict[int, int] = OrderedDict()
    gone: list[int] = []
    evictions = 0
    for action, key, value in steps:
        if action == "put":
            gone += [model.pop(key)] if key in model else []
            assert recent.put(key, value) == value
            while model and sum(model.values()) + value > budget:
                gone.append(model.popitem(last=False)[1])
                evictions += 1
            model[key] = value
        elif action == "forget":
            recent.forget(key)
            gone += [model.pop(key)] if key in model else []
        else:
            assert recent.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)

        assert list(recent) == list(model)
        assert recent.weight == sum(model.values())
        assert dropped == gone

    assert recent.take_evictions() == evictions
    assert recent.take_evictions() == 0
    recent.clear()
    assert (len(recent), recent.weight) == (0, 0)
