# SPDX-License-Identifier: Apache-2.0
"""One process's share of an epoch, from positions to batches: fetch, decode, assemble, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robostream.assemble import BatchWriter, Sample
from robostream.decode import NEVER
from robostream.errors import DatasetError
from robostream.loader.ordered import map_ordered
from robostream.loader.pool import EpisodePool
from robostream.loader.uses import Ints, own_positions
from robostream.loader.workshop import Workshop, batches_ahead, samples_per_part
from robostream.plan import Batch, Cut, EpochPlan


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of an epoch one process delivers."""

    plan: EpochPlan
    cut: Cut
    start: int
    worker: int
    num_workers: int

    def time(self, position: int) -> int:
        """Return when a position is delivered, in samples of this rank since the start."""
        return (position - self.start) // self.cut.world_size

    def times(self, episode: int) -> Ints:
        """Return when each frame's sample is delivered, NEVER for those of other processes."""
        positions = own_positions(
            self.plan.positions(episode),
            self.cut,
            start=self.start,
            worker=self.worker,
            num_workers=self.num_workers,
        )
        since = (positions - self.start) // self.cut.world_size
        return np.where(positions == NEVER, NEVER, since)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some places of a batch, for one thread."""

    batch: Batch
    writer: BatchWriter
    places: list[int]


def deliver(
    batches: Iterator[Batch], share: Share, shop: Workshop, *, depth: int
) -> Iterator[tuple[Batch, BatchWriter]]:
    """Yield the batches in order, filled, working at most `depth` of them ahead."""
    pool = EpisodePool(shop.load, share.times, shop.spec)
    shop.foresight.begin(pool.next_uses)

    def fill(part: _Part) -> _Part:
        try:
            _fill(part, [_resolve(part, place, share, shop) for place in part.places], shop, pool)
        except Exception as error:
            # One by one, to find the sample that cannot be built.
            for place in part.places:
                _fill_place(part, place, share, shop, pool)
            if not (isinstance(error, DatasetError) and shop.quarantine.policy == "quarantine"):
                raise  # It did not happen again; but it did happen.
        return part

    size, threads = share.cut.batch_size, shop.threads
    ahead = batches_ahead(depth, size, threads)
    group = samples_per_part(shop.spec, ahead * size, threads)
    parts = (_split(batch, shop, group) for batch in batches)
    try:
        for filled in map_ordered(fill, parts, threads=threads, depth=ahead):
            batch, writer = filled[0].batch, filled[0].writer
            pool.retire(share.time(batch.positions.start))
            yield batch, writer
    finally:
        shop.foresight.end()


def _split(batch: Batch, shop: Workshop, group: int) -> list[_Part]:
    """Return the parts of a batch, by episode: threads then seldom want the same frames at once."""
    size = len(batch.positions)
    writer = BatchWriter(size, shop.layout, allocate=shop.buffers.take)
    places = np.argsort(batch.episodes, kind="stable").tolist()
    return [_Part(batch, writer, places[first : first + group]) for first in range(0, size, group)]


class _Wanted(NamedTuple):
    """Which frame goes to a place of a batch, and when."""

    place: int
    episode: int
    frame: int
    time: int


def _resolve(part: _Part, place: int, share: Share, shop: Workshop) -> _Wanted:
    batch, position = part.batch, part.batch.positions[place]
    planned = int(batch.episodes[place]), int(batch.frames[place])
    episode, frame = shop.quarantine.resolve(share.plan, position, planned)
    return _Wanted(place, episode, frame, shop.foresight.time(share.time(position)))


def _fill(part: _Part, wanted: list[_Wanted], shop: Workshop, pool: EpisodePool) -> None:
    samples = [Sample(one.place, pool.get(one.episode), one.frame, one.time) for one in wanted]
    part.writer.fill(samples, shop.engine)


def _fill_place(part: _Part, place: int, share: Share, shop: Workshop, pool: EpisodePool) -> None:
    position = part.batch.positions[place]
    while True:
        wanted = _resolve(part, place, share, shop)
        try:
            _fill(part, [wanted], shop, pool)
            return
        except DatasetError as error:
            if not shop.quarantine.accept(wanted.episode, error):
                _locate(error, wanted, position)
                raise
        except Exception as error:
            _locate(error, wanted, position)
            raise


def _locate(error: Exception, wanted: _Wanted, position: int) -> None:
    """Append to an error's text which sample it happened on; the type stays what users catch."""
    mark = "while building the sample of episode"
    if len(error.args) == 1 and isinstance(error.args[0], str) and mark not in error.args[0]:
        sample = (
            f"{mark} {wanted.episode}, frame {wanted.frame}, at position {position} of the epoch"
        )
        error.args = (f"{error.args[0]} ({sample})",)
