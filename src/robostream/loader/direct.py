# SPDX-License-Identifier: Apache-2.0
"""Reading a stream sample by sample: iterating over it, here or in a plain DataLoader's workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import get_worker_info

from robostream.batches import WorkerContext
from robostream.errors import StateError
from robostream.loader.agreement import EpochAgreement
from robostream.loader.bad_episodes import BadEpisodes
from robostream.loader.plain import PlainProgress, plain_progress
from robostream.loader.position import Position
from robostream.loader.samples import SampleIterator, SampleShare
from robostream.plan import Cursor, Cut, EpochPlan


class DirectIteration:
    """Which samples the next iterator over a stream delivers, and where the stream stands.

    A plain DataLoader's workers iterate over copies of the stream. They agree on their epochs by a
    table that all copies share (`EpochAgreement`); the stream they are copies of stays where it is.
    """

    def __init__(self) -> None:
        self.bookmark = Position()
        self._agreement = EpochAgreement()
        # How many iterators this very copy has begun in a worker.
        self._laps = 0
        self._read_by_loader = False

    def begin(
        self,
        plan: Callable[[int], EpochPlan],
        cut: Cut,
        open_worker: Callable[[int], WorkerContext],
        bad_episodes: BadEpisodes,
        check_state: Callable[[Mapping[str, Any]], Cursor],
    ) -> SampleIterator:
        """Return a new iterator.

        Args:
            plan: Returns the order of an epoch.
            cut: The rank, with a batch of one sample.
            open_worker: Takes the number of processes that iterate; returns what this one builds
                samples with.
            bad_episodes: The episodes set aside.
            check_state: Returns where a state of this order stands, or raises StateError.
        """
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        began_from, start = self.bookmark.staged, self.bookmark.next_start()
        share = SampleShare(plan(start.epoch), cut, start.position, worker, num_workers)
        taken = (0, 1) if began_from is None else self.bookmark.taken or (0, 1)
        progress = plain_progress(share, *taken)
        first = progress.share.plan.epoch
        if info is None:
            key = None
            epoch = max(first, self._agreement.last(self.bookmark.version) + 1)
        else:
            key = self.bookmark.version, info.seed - info.id, self._laps
            epoch = self._agreement.epoch_of(*key, first)
            self._laps += 1
        if epoch != first:
            progress = PlainProgress(SampleShare(plan(epoch), cut, 0, worker, num_workers), 0)

        def restore(state: Mapping[str, Any]) -> tuple[EpochPlan, int]:
            cursor = check_state(state)
            return bad_episodes.plan_of(plan(cursor.epoch)), cursor.position

        def on_deliver(iterator: SampleIterator) -> None:
            if key is None:
                self._read_by_loader = False
                self.bookmark.deliver(iterator.cursor(), began_from)

        def on_move(epoch: int) -> None:
            if key is not None:
                self._agreement.move(*key, epoch)

        return SampleIterator(
            progress.share,
            skipped=progress.samples,
            worker=open_worker(num_workers),
            bad_episodes=bad_episodes,
            check_state=restore,
            on_deliver=on_deliver,
            on_move=on_move,
        )

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin an epoch, unless a state in it waits to be gone on from."""
        self.bookmark.is_used |= self._is_read_by_workers()
        self.bookmark.set_epoch(epoch)

    def note_loader(self, version: int) -> None:
        """Note that a StreamingDataLoader has delivered a batch.

        Args:
            version: The version of the bookmark that the loader's iterator knew when it began.
        """
        self._read_by_loader = True
        self.bookmark.is_used |= self.bookmark.version == version

    def check_bookmark(self) -> None:
        """Raise StateError if somebody else delivered last: the run does not stand here then."""
        if self._read_by_loader:
            raise StateError(
                "a StreamingDataLoader reads this stream and knows where the run stands: save "
                "loader.state_dict() instead of stream.state_dict()"
            )
        if self._is_read_by_workers():
            raise StateError(
                "the samples were delivered by worker processes of a plain DataLoader, whose "
                "progress the dataset cannot see. Use StreamingDataLoader, or torchdata's "
                "StatefulDataLoader, and save its state; or save {'batches_consumed': n, "
                "'batch_size': b} and load that."
            )

    def __getstate__(self) -> dict[str, Any]:
        # A copy stands where this one does, and goes its own way.
        own = {
            "bookmark": copy.copy(self.bookmark),
            "_agreement": self._agreement.for_copy(),
            "_laps": 0,
        }
        return self.__dict__ | own

    def _is_read_by_workers(self) -> bool:
        return self._agreement.last(self.bookmark.version) >= 0
