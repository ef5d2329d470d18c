# SPDX-License-Identifier: Apache-2.0
"""Mixtures: how often each frame is delivered; ranks, batches and resumes change nothing."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import SelectionError
from robostream.plan import (
    Cut,
    EpochPlan,
    Ints,
    Mixture,
    MixtureSource,
    Segments,
    SelectedFrames,
    digest,
    share_frames,
    steps_left,
    walk,
)
from robostream.plan.mixture import endless_slice
from tests.plan.spec import pairs

PER_DATASET = 10_000  # episode numbers of dataset d begin at d * PER_DATASET


@st.composite
def frame_ranges(draw: st.DrawFn, dataset: int = 0, *, weighted: bool = False) -> SelectedFrames:
    """Return ranges of a few episodes, some trimmed, in one stride."""
    stride = draw(st.integers(1, 3))
    rows = []
    for episode in range(draw(st.integers(1, 6))):
        first = draw(st.integers(0, 4))
        for _ in range(draw(st.integers(1, 2))):
            count = draw(st.integers(1, 9))
            rows.append((dataset * PER_DATASET + episode, first, count, stride))
            first += (count + draw(st.integers(0, 2))) * stride
    weights = None
    if weighted:
        weights = np.array(
            draw(st.lists(st.floats(0.1, 5), min_size=len(rows), max_size=len(rows)))
        )
    return SelectedFrames(Segments(*np.array(rows).T), weights)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    ranges = [draw(frame_ranges(d)) for d in range(draw(st.integers(1, 4)))]
    frames = [r.num_frames for r in ranges]
    weights = draw(st.lists(st.floats(0.2, 4), min_size=len(ranges), max_size=len(ranges)))
    total = draw(st.none() | st.integers(len(ranges), 2 * sum(frames)))
    counts = [max(1, count) for count in share_frames(frames, weights, total=total)]
    origins = draw(st.lists(st.integers(0, 99), min_size=len(ranges), max_size=len(ranges)))
    sources = tuple(
        MixtureSource(r, count, label=d, origin=origin)
        for d, (r, count, origin) in enumerate(zip(ranges, counts, origins, strict=True))
    )
    return Mixture(sources, np.arange(len(ranges)) * PER_DATASET)


@st.composite
def plans(draw: st.DrawFn) -> EpochPlan:
    return EpochPlan(
        draw(mixtures()),
        seed=draw(st.integers(0, 99)),
        epoch=draw(st.integers(0, 5)),
        lanes=draw(st.integers(1, 9)),
        pool_size=draw(st.integers(1, 9)),
    )


def frames_of(segments: Segments) -> list[tuple[int, int]]:
    """All (episode, frame) pairs of segments, in order."""
    rows = zip(*(column.tolist() for column in segments.columns()), strict=True)
    return [(e, first + n * stride) for e, first, count, stride in rows for n in range(count)]


@given(plan=plans())
def test_each_dataset_delivers_its_count(plan: EpochPlan) -> None:
    """In every epoch, exactly; and each frame floor or ceil of the dataset's laps."""
    content = plan.content
    assert isinstance(content, Mixture)
    found = Counter(pairs(plan, 0, plan.num_frames))

    assert plan.num_frames == sum(source.count for source in content.sources)
    for dataset, source in enumerate(content.sources):
        own = frames_of(source.frames.segments)
        laps = Fraction(source.count, len(own))
        times = [found.pop(frame, 0) for frame in own]
        assert sum(times) == source.count, dataset
        assert set(times) <= {int(laps), -int(-laps // 1)}
    assert not found


@given(content=mixtures(), seed=st.integers(0, 99), epochs=st.integers(1, 6))
def test_over_epochs_frames_are_equally_often(content: Mixture, seed: int, epochs: int) -> None:
    """Two frames of a dataset differ by at most one, however many epochs have passed."""
    plan = EpochPlan(content, seed=seed, epoch=0, lanes=4, pool_size=3)
    found: Counter[tuple[int, int]] = Counter()
    for epoch in range(epochs):
        found.update(pairs(plan.replace(epoch=epoch), 0, plan.num_frames))

    for source in content.sources:
        times = [found[frame] for frame in frames_of(source.frames.segments)]
        assert max(times) - min(times) <= 1


@given(plan=plans(), data=st.data())
def test_slices_positions_and_receipts_agree(plan: EpochPlan, data: st.DataObject) -> None:
    """A slice is a slice of the whole, positions are its inverse, receipts its digest."""
    order = pairs(plan, 0, plan.num_frames)
    start = data.draw(st.integers(0, plan.num_frames))
    step = data.draw(st.integers(1, 5))
    episode = data.draw(st.sampled_from(plan.line.ids.tolist()))
    first = data.draw(st.integers(0, 12))
    stop = data.draw(st.integers(first, 30))
    used = [p for p, (e, f) in enumerate(order) if e == episode and first <= f < stop]

    assert pairs(plan, start, plan.num_frames, step) == order[start::step]
    assert sorted(plan.uses(episode, first, stop).tolist()) == used
    assert sorted(plan.positions(episode).tolist()) == [
        p for p, (e, _) in enumerate(order) if e == episode
    ]
    plan.receipt(plan.num_frames)
    assert plan.receipt(start) == digest(*plan.slice(0, start))


@given(plan=plans(), world_size=st.integers(1, 5), batch_size=st.integers(1, 4), data=st.data())
def test_ranks_and_batches_only_divide_the_order(
    plan: EpochPlan, world_size: int, batch_size: int, data: st.DataObject
) -> None:
    """From any position, the ranks' batches interleaved are the rest of the order."""
    position = data.draw(st.integers(0, plan.num_frames))
    order = dict(enumerate(pairs(plan, 0, plan.num_frames)))
    found = {}
    for rank in range(world_size):
        cut = Cut(rank, world_size, batch_size, drop_last=False)
        for batch in walk(plan, cut, position, range(steps_left(cut, plan.num_frames, position))):
            for p, e, f in zip(batch.positions, batch.episodes, batch.frames, strict=True):
                if p < plan.num_frames:
                    found[p] = (int(e), int(f))

    assert found == {p: order[p] for p in range(position, plan.num_frames)}


@given(plan=plans(), data=st.data())
def test_stand_ins_come_from_the_same_dataset(plan: EpochPlan, data: st.DataObject) -> None:
    """Shares stay as they are where the epoch has healthy frames of the dataset; receipts agree."""
    ids = plan.line.ids.tolist()
    bad = data.draw(st.sets(st.sampled_from(ids), max_size=len(ids) - 1))
    without = plan.replace(quarantined=bad)
    before, after = pairs(plan, 0, plan.num_frames), pairs(without, 0, plan.num_frames)
    healthy = {e // PER_DATASET for e, _ in before if e not in bad}

    for old, new in zip(before, after, strict=True):
        assert new[0] not in bad
        if old[0] not in bad:
            assert new == old
        elif old[0] // PER_DATASET in healthy:
            assert new[0] // PER_DATASET == old[0] // PER_DATASET
    position = data.draw(st.integers(0, plan.num_frames))
    without.receipt(plan.num_frames)
    assert without.receipt(position) == digest(*without.slice(0, position))


@given(ranges=frame_ranges(weighted=True), seed=st.integers(0, 9), start=st.integers(0, 500))
def test_weighted_episodes_are_repeated_in_proportion(
    ranges: SelectedFrames, seed: int, start: int
) -> None:
    """Over many laps, frames are delivered in proportion to the weights of their ranges."""
    source = MixtureSource(ranges, ranges.num_frames)
    laps = 200
    stop = start + laps * ranges.num_frames
    found = Counter(frames_of(endless_slice(source, start, stop, seed=seed)))
    times = ranges.units() / 2**32

    assert sum(found.values()) == stop - start
    assert ranges.weights is not None
    for row, expected in enumerate(times):
        for frame in frames_of(ranges.segments.take(np.array([row]))):
            assert found[frame] == pytest.approx(laps * expected, abs=3 + 2 * expected)


@given(
    source=frame_ranges(weighted=True).map(lambda r: MixtureSource(r, r.num_frames)), data=st.data()
)
def test_any_part_of_the_endless_line_is_found_directly(
    source: MixtureSource, data: st.DataObject
) -> None:
    """A slice equals the same slice of a longer one: no replay is needed."""
    whole = frames_of(endless_slice(source, 0, 400, seed=1))
    start = data.draw(st.integers(0, 399))
    stop = data.draw(st.integers(start + 1, 400))

    assert frames_of(endless_slice(source, start, stop, seed=1)) == whole[start:stop]


def test_the_same_frames_at_a_changed_weight() -> None:
    """New counts begin where the old ones stopped: no frame is skipped or repeated in between."""
    ranges = SelectedFrames(Segments(*np.array([[0, 1, 2], [0, 0, 0], [7, 9, 11], [1, 1, 1]])))
    old = Mixture((MixtureSource(ranges, 10),), np.array([0]))
    new = Mixture((MixtureSource(ranges, 17),), np.array([0])).begin_again(2, old.places(2))
    found: Counter[tuple[int, int]] = Counter()
    for content, epoch in ((old, 0), (old, 1), (new, 2)):
        plan = EpochPlan(content, seed=0, epoch=epoch, lanes=2, pool_size=2)
        found.update(pairs(plan, 0, plan.num_frames))

    assert set(found.values()) == {1, 2}
    assert sum(found.values()) == 37
    with pytest.raises(SelectionError, match="epoch 1 lies before epoch 2"):
        EpochPlan(new, seed=0, epoch=1, lanes=2, pool_size=2)


@pytest.mark.parametrize(
    ("frames", "weights", "total", "counts"),
    [
        ([10, 30], [10, 30], None, [10, 30]),
        ([10, 30], [1, 1], None, [30, 30]),
        ([10, 30], [2, 1], None, [60, 30]),
        ([100, 100, 100], [1, 1, 1], 100, [34, 33, 33]),
        ([5], [0.3], None, [5]),
    ],
)
def test_counts_follow_weights(
    frames: list[int], weights: list[float], total: int | None, counts: list[int]
) -> None:
    """By default an epoch covers every dataset; else it has the asked number of frames."""
    assert share_frames(frames, weights, total=total) == counts


@given(
    frames=st.lists(st.integers(1, 10**6), min_size=1, max_size=20),
    data=st.data(),
)
def test_counts_cover_and_sum(frames: list[int], data: st.DataObject) -> None:
    """Covering counts reach every frame; given totals are met exactly, within one of the share."""
    weights = data.draw(st.lists(st.floats(0.01, 100), min_size=len(frames), max_size=len(frames)))
    total = data.draw(st.integers(1, 10**7))
    covering = share_frames(frames, weights)
    counts = share_frames(frames, weights, total=total)

    assert all(count >= own for count, own in zip(covering, frames, strict=True))
    assert sum(counts) == total
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) <= 1.0001


@st.composite
def many_episodes(draw: st.DrawFn) -> Mixture:
    """Return a mixture of enough episodes for lanes of several blocks."""
    random = np.random.default_rng(draw(st.integers(0, 9999)))
    sources = []
    for dataset in range(draw(st.integers(1, 5))):
        lengths = random.integers(
            1, draw(st.integers(1, 20)), random.integers(1, 300), dtype=int, endpoint=True
        )
        frames = whole_episodes(dataset, lengths)
        count = max(1, int(frames.num_frames * draw(st.floats(0.2, 3))))
        sources.append(MixtureSource(frames, count, label=dataset))
    return Mixture(tuple(sources), np.arange(len(sources)) * PER_DATASET)


def whole_episodes(dataset: int, lengths: Ints) -> SelectedFrames:
    own = dataset * PER_DATASET + np.arange(lengths.size)
    return SelectedFrames(Segments(own, 0 * own, lengths, 0 * own + 1))


@given(content=many_episodes(), seed=st.integers(0, 99), lanes=st.sampled_from([4, 6, 12, 24]))
def test_every_round_of_lanes_has_each_datasets_share(
    content: Mixture, seed: int, lanes: int
) -> None:
    """Within one lane, and the lanes of each rank too; over the epoch the counts are exact.

    A round takes the same place of every lane, and the lanes of rank r of W have the numbers r,
    r + W, r + 2 W ...
    """
    plan = EpochPlan(content, seed=seed, epoch=0, lanes=lanes, pool_size=4)
    numbers, starts, _ = plan.lane_spans()
    places = starts[:, np.newaxis] + np.arange(plan.num_frames // lanes)
    datasets = content.datasets_of(plan.line.locate(places)[0])
    every = content.datasets_of(plan.line.segments.episodes)

    for number, source in enumerate(content.sources):
        assert plan.line.segments.counts[every == number].sum() == source.count
        for ranks in (n for n in range(1, lanes + 1) if lanes % n == 0):
            share = source.count * lanes / plan.num_frames / ranks
            for rank in range(ranks):
                found = (datasets[numbers % ranks == rank] == number).sum(axis=0)
                # A block's count is a whole number of frames, and its lanes differ by one.
                assert (abs(found - share) < 1 + 1 / 8).all()


@given(content=many_episodes(), lanes=st.sampled_from([4, 24]))
def test_blocks_of_lanes_cut_few_episodes(content: Mixture, lanes: int) -> None:
    """At most once for each lane and dataset of a block, of which a lane has 8 episodes."""
    episodes = sum(
        endless_slice(source, 0, source.count, seed=0).counts.size for source in content.sources
    )
    plan = EpochPlan(content, seed=0, epoch=0, lanes=lanes, pool_size=4)
    blocks = max(1, min(16, episodes // lanes // 8)) if len(content.sources) > 1 else 1

    assert plan.line.segments.counts.size - episodes <= blocks * (lanes + len(content.sources))


@pytest.mark.parametrize("datasets", [2, 20])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_over_an_epoch_ranks_get_each_datasets_share(datasets: int, seed: int) -> None:
    """Within a lane of a block: of two blocks, a rank has 30 lanes each.

    Also of episodes of one length. In the second block, other ranks have the lanes left over.
    """
    lengths = np.full(4800 // datasets, 100)
    frames = [whole_episodes(dataset, lengths) for dataset in range(datasets)]
    sources = tuple(MixtureSource(f, f.num_frames, label=n) for n, f in enumerate(frames))
    content = Mixture(sources, np.arange(datasets) * PER_DATASET)
    plan = EpochPlan(content, seed=seed, epoch=0, lanes=240, pool_size=64)
    numbers, starts, stops = plan.lane_spans()
    for rank in range(8):
        own = zip(starts[numbers % 8 == rank], stops[numbers % 8 == rank], strict=True)
        places = np.concatenate([np.arange(*span) for span in own])
        counts = np.bincount(content.datasets_of(plan.line.locate(places)[0]), minlength=datasets)

        assert abs(counts / places.size - 1 / datasets).max() < 1.01 / (2 * 30)
