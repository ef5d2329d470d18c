# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import VideoDecoderCache
from tests.threads import at_once


@given(files=st.lists(st.sampled_from("abcdefg"), max_size=60), cap=st.integers(1, 5))
def test_it_is_a_least_recently_used_cache(files: list[str], cap: int) -> None:
    """Hits, misses, evictions and what is held are those of an ordered dict with a cap."""
    cache = VideoDecoderCache(lambda file: [file], cap)
    model: OrderedDict[str, None] = OrderedDict()
    hits = evictions = 0
    for file in files:
        hits += file in model
        model[file] = None
        model.move_to_end(file)
        if len(model) > cap:
            model.popitem(last=False)
            evictions += 1
        assert cache.get(file) == [file]

    assert (cache.hits, cache.misses, cache.evictions) == (hits, len(files) - hits, evictions)
    assert cache.size == len(model)
    assert cache.hit_rate == (hits / len(files) if files else 0)


def test_without_a_cap_everything_stays() -> None:
    """None holds every file."""
    cache = VideoDecoderCache(str.upper, None)
    for number in range(500):
        cache.get(str(number))

    assert cache.size == 500
    assert cache.evictions == 0


def test_a_slow_file_does_not_hold_up_others() -> None:
    """While one file is being opened, others are served."""
    may_open = threading.Event()

    def open_file(file: str) -> str:
        if file == "slow":
            assert may_open.wait(60)
        return file

    cache = VideoDecoderCache(open_file, 4)
    slow = threading.Thread(target=cache.get, args=("slow",))
    slow.start()
    assert cache.get("quick") == "quick"
    may_open.set()
    slow.join()

    assert cache.size == 2


def test_threads_open_a_file_once() -> None:
    """Of many threads that want a file at once, one opens it and all get the same."""
    opened: list[str] = []

    def open_file(file: str) -> object:
        opened.append(file)
        return object()

    cache = VideoDecoderCache(open_file, 4)
    got = at_once(8, lambda _: cache.get("file"))

    assert opened == ["file"]
    assert len(set(map(id, got))) == 1


def test_a_failed_opening_can_be_tried_again() -> None:
    """An error reaches the caller and leaves nothing behind."""
    failing = [True]

    def open_file(file: str) -> str:
        if failing:
            failing.clear()
            raise OSError("gone")
        return file

    cache = VideoDecoderCache(open_file, 4)
    with pytest.raises(OSError, match="gone"):
        cache.get("file")

    assert cache.get("file") == "file"
    assert cache.size == 1


def test_a_cap_below_one_is_refused() -> None:
    """A cache that may hold nothing is a mistake."""
    with pytest.raises(ValueError, match="max_files=0"):
        VideoDecoderCache(str, 0)
