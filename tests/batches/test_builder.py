# SPDX-License-Identifier: Apache-2.0
"""Batches are the same however far ahead they were decoded."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.batches import BadSampleError, BatchBuilder, WorkerBudgets, WorkerContext
from robostream.decode import COUNTERS, SharedFrameCache
from robostream.errors import VideoFileError
from robostream.loader.resources import shared_layout
from robostream.loader.stream import cursor_of
from robostream.plan import Cut, Schedule, WorkerShard, rank_lanes
from robostream.tools import SynthSpec, make_dataset
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import open_stream
from tests.parameters import examples

WINDOW = {"observation.images.top": [-0.1, 0.0, 0.1]}
STREAMS: dict[str, dict[str, Any]] = {
    "short GOPs": {"root": FIXTURES / "av1_multifile"},
    "windows": {"root": FIXTURES / "av1_multifile", "delta_timestamps": WINDOW},
    "long GOPs": {"root": FIXTURES / "h264_long_gop"},
    "no shuffle": {"root": FIXTURES / "av1_multifile", "shuffle": False},
}
LONG_EPOCH = SynthSpec(
    episodes=60, distinct=2, min_frames=20, max_frames=24, cameras=1, width=32, height=32
)
FRAME_BYTES = [4 << 20, 1 << 20, 200_000]


class Bench:
    """One worker of two that builds the batches of an epoch."""

    def __init__(self, stream: Any, frame_bytes: int, *, batch_size: int, world_size: int) -> None:
        cursor = cursor_of(stream)
        self.layout = cursor.layout
        cut = Cut(0, world_size, batch_size, drop_last=False)
        self.schedule = Schedule(stream.plan(0), cut, 0)
        budgets = WorkerBudgets(frame_bytes, 1 << 20, 8, 2, runs_ahead=True)
        shard = WorkerShard(0, 2, len(self.layout.cameras))
        self.counters = np.zeros(len(COUNTERS))
        self.context = WorkerContext(self.layout, shard, budgets, counters=self.counters)
        lanes = rank_lanes(cut, stream.lanes)
        self.builder = BatchBuilder(self.context, self.schedule, lanes)
        self.built = 0

    @property
    def cached(self) -> list[Any]:
        """What the cache of decoded frames holds."""
        cache: Any = self.context.decoders[0].cache
        return [owner for owner in cache._owners if owner is not None]

    @property
    def delivered(self) -> float:
        """How many images the counters say were delivered."""
        return float(self.counters[COUNTERS.index("images_delivered")])

    def build_next(self) -> None:
        """Build the next batch."""
        share = self.builder.next_share()
        assert share is not None
        list(self.builder.fill([(share, self.arrays(share.size))]))

    def arrays(self, size: int) -> dict[str, Any]:
        """Return memory for a batch."""
        found = self.layout.arrays.items()
        return {key: np.zeros((size, *shape), dtype) for key, (shape, dtype) in found}

    def batches(self, ahead: Iterator[int], at_a_time: int) -> list[dict[str, Any]]:
        """Build all batches; before each, decode ahead so many times."""
        found: list[dict[str, Any]] = []
        while True:
            for _ in range(next(ahead)):
                self.builder.decode_ahead()
            shares = []
            while len(shares) < at_a_time and (share := self.builder.next_share()) is not None:
                shares.append((share, self.arrays(share.size)))
            if not shares:
                return found
            texts = list(self.builder.fill(shares))
            found += [arrays | own for (_, arrays), own in zip(shares, texts, strict=True)]
            self.built = len(found)


def _bench(name: str, *options: int) -> AbstractContextManager[Bench]:
    return _bench_of(open_stream(**STREAMS[name]), *options)


@contextmanager
def _bench_of(
    stream: Any, frame_bytes: int, batch_size: int, world_size: int = 1
) -> Iterator[Bench]:
    bench = Bench(stream, frame_bytes, batch_size=batch_size, world_size=world_size)
    try:
        yield bench
    finally:
        bench.builder.close()
        bench.context.close()


def _assert_equal(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, other[key])
            else:
                assert value == other[key]


@examples(12)
@given(data=st.data())
@pytest.mark.parametrize("name", STREAMS)
def test_batches_do_not_depend_on_what_is_decoded_ahead(name: str, data: st.DataObject) -> None:
    """Values and texts are those of a builder that decodes nothing ahead."""
    frame_bytes = data.draw(st.sampled_from(FRAME_BYTES))
    batch_size, world_size = data.draw(st.sampled_from([(1, 1), (4, 1), (3, 4)]))
    times, at_a_time = st.integers(0, 3), data.draw(st.integers(1, 3))
    with _bench(name, FRAME_BYTES[0], batch_size, world_size) as plain:
        wanted = plain.batches(itertools.repeat(0), 1)
    with _bench(name, frame_bytes, batch_size, world_size) as bench:
        found = bench.batches(iter(lambda: data.draw(times), -1), at_a_time)

    _assert_equal(found, wanted)


@pytest.mark.parametrize("name", STREAMS)
def test_frames_decoded_ahead_are_dropped_with_the_builder(name: str) -> None:
    """They are kept within the memory for decoded frames until then."""
    with _bench(name, FRAME_BYTES[0], 4) as bench:
        decoder = bench.context.decoders[0]
        bench.build_next()
        held = []
        while bench.builder.decode_ahead():
            held.append(len(decoder._uncached) + len(bench.cached))
        bench.builder.close()

        assert held
        assert max(held) * decoder.cache._pool.slot_bytes(0) <= FRAME_BYTES[0]
        assert (bench.cached, decoder._uncached) == ([], {})


def test_frames_due_at_the_end_of_the_epoch_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the lead-in fill the memory; a worker that waits decodes ahead all the same."""
    make_dataset(tmp_path / "synth", LONG_EPOCH)
    window = {"observation.images.front": [-0.1, 0.0]}
    options = {"lanes": 4, "episode_pool_size": 4, "delta_timestamps": window}
    monkeypatch.setattr("robostream.batches.builder._SAMPLES_AHEAD", 8)
    monkeypatch.setattr("robostream.batches.builder._LEAST_ROOM", 8)
    with _bench_of(open_stream(tmp_path / "synth", **options), 60_000, 2) as bench:
        cache = bench.context.decoders[0].cache
        ahead = []
        for _ in range(200):
            bench.build_next()
            if not cache.has_room(8):
                ahead.append(bench.builder.decode_ahead())

        assert sum(ahead) > 10


@pytest.mark.parametrize(("bytes_at_a_time", "groups"), [(1, {1}), (1 << 20, {5})])
def test_few_large_frames_are_decoded_at_a_time(
    bytes_at_a_time: int, groups: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that no later batch needs would else take much memory."""
    monkeypatch.setattr("robostream.batches.builder._BYTES_AT_A_TIME", bytes_at_a_time)
    with _bench("short GOPs", FRAME_BYTES[0], 4) as bench:
        first = bench.builder.next_shares(5)
        found = {len(bench.builder.next_shares(5)) for _ in range(2)}

        assert (len(first), found) == (1, groups)


def test_without_memory_nothing_is_decoded_ahead() -> None:
    """So a worker without a frame cache holds no frames."""
    with _bench("short GOPs", 0, 4) as bench:
        bench.build_next()

        assert not bench.builder.decode_ahead()


def test_an_error_ahead_is_raised_for_its_batch(tmp_path: Path) -> None:
    """The batches before it are built."""
    root = copy_of("av1_multifile", tmp_path)
    for video in sorted(root.glob("videos/*top/**/*.mp4"))[1:]:
        video.write_bytes(b"no video")
    with _bench_of(open_stream(root, shuffle=False), FRAME_BYTES[0], 1) as bench:
        with pytest.raises(BadSampleError) as ahead:
            bench.batches(itertools.repeat(2), 1)
        steps_ahead = bench.built
    with _bench_of(open_stream(root, shuffle=False), FRAME_BYTES[0], 1) as bench:
        with pytest.raises(BadSampleError) as plain:
            bench.batches(itertools.repeat(0), 1)

        assert 0 < bench.built == steps_ahead
        assert str(ahead.value) == str(plain.value)


def test_frames_that_no_cache_takes_are_not_decoded_far_ahead() -> None:
    """A shared cache has a slot for every frame, but none for frames of another layout."""
    with _bench("short GOPs", FRAME_BYTES[0], 4) as bench:
        layout = shared_layout(bench.layout, on_disk=False)
        other = dataclasses.replace(layout, slot_bytes=tuple(n // 2 for n in layout.slot_bytes))
        decoder = bench.context.decoders[0]
        decoder.cache = SharedFrameCache(np.zeros(other.nbytes, np.uint8), other)
        bench.build_next()

        assert bench.builder.decode_ahead()
        assert decoder._uncached
        assert not bench.builder.decode_ahead()


@pytest.mark.parametrize("error", [VideoFileError("damaged"), MemoryError()])
def test_an_error_that_passes_loses_no_batch(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever decoding ahead raises: batches are decoded again, and one warning tells it."""
    with _bench("windows", FRAME_BYTES[0], 1) as plain:
        wanted = plain.batches(itertools.repeat(0), 1)
    with _bench("windows", FRAME_BYTES[0], 1) as bench, caplog.at_level(logging.WARNING):
        bench.build_next()
        with monkeypatch.context() as patch:
            patch.setattr(bench.context, "decode", _raise(error))
            assert bench.builder.decode_ahead()
        assert not bench.builder.decode_ahead()  # nothing beyond what failed
        found = bench.batches(itertools.repeat(0), 1)

    _assert_equal(found, wanted[1:])
    assert [str(error) in record.message for record in caplog.records] == [True]


def test_batches_before_a_bad_one_are_counted(tmp_path: Path) -> None:
    """Also if all were built at once."""
    root = copy_of("av1_multifile", tmp_path)
    for video in sorted(root.glob("videos/*top/**/*.mp4"))[1:]:
        video.write_bytes(b"no video")
    with _bench_of(open_stream(root, shuffle=False), FRAME_BYTES[0], 1) as bench:
        with pytest.raises(BadSampleError):
            bench.batches(itertools.repeat(0), 1000)

        assert bench.delivered > 0


def _raise(error: Exception) -> Any:
    def decode(_: Any) -> None:
        raise error

    return decode
