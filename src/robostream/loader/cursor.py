# SPDX-License-Identifier: Apache-2.0
"""Where a stream or a loader stands, and what copies of a stream share.

A plain DataLoader does not tell its dataset that an iterator begins: each of its workers has a
copy of the dataset, new or kept, and iterates over it. But all workers of one iterator have the
same base seed, which torch draws anew for each iterator. So the first worker with a new seed gets
the next epoch, and the others look that epoch up by the seed (`EpochTable`). Reseeding torch
identically before each epoch makes torch draw the same base seed, and replays the same epoch.
"""

from __future__ import annotations

import copy
import fcntl
import functools
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import SampleLayout
from robostream.device import create_memory
from robostream.errors import StateError
from robostream.loader.bad_episodes import BadEpisodes
from robostream.loader.resources import Resources, choose_resources
from robostream.loader.stream_spec import StreamSpec, choose_layout
from robostream.plan import Cursor, EpochPlan, check_batches, counts_batches

# How many iterators the table has room for; a new one replaces the oldest.
_ROWS = 64
_COLUMNS = 5
_VERSION, _SEED, _LAP, _EPOCH, _TURN = range(_COLUMNS)
_NBYTES = 8 * _ROWS * _COLUMNS

_Rows = npt.NDArray[np.int64]


class Position:
    """Moves on with every delivery; beginning an iterator does not move it.

    `load_state_dict` and `set_epoch` stage a cursor, at which the next iterator begins.

    Attributes:
        cursor: The next position to deliver, and its epoch.
        staged: The staged cursor; None once an iterator that began there has delivered.
        last_staged: The cursor that was staged last, used or not.
        batches_taken: Number and size of a plain DataLoader's batches, if the state counts those.
        is_used: Whether an iterator, also one of a loader, has continued from `last_staged`.
        version: How often a cursor was staged.
    """

    def __init__(self) -> None:
        self.cursor = Cursor(0, 0)
        self.staged: Cursor | None = None
        self.last_staged: Cursor | None = None
        self.batches_taken: tuple[int, int] | None = None
        self.is_used = False
        self.version = 0

    def next_start(self) -> Cursor:
        """Return where an iterator that is made now begins.

        That is the staged cursor, if there is one. Otherwise it is the start of an epoch: of the
        one the consumer is about to begin, or of the next one if the consumer left an epoch early.
        """
        if self.staged is not None:
            return self.staged
        return self.cursor if self.cursor.position == 0 else Cursor(self.cursor.epoch + 1, 0)

    def stage(self, cursor: Cursor, batches_taken: tuple[int, int] | None = None) -> None:
        """Make the next iterator begin at a cursor."""
        self.cursor = cursor
        self.batches_taken = batches_taken
        # A new object, so that `deliver` can tell it from an equal cursor staged before.
        self.staged = self.last_staged = Cursor(cursor.epoch, cursor.position)
        self.is_used = False
        self.version += 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin an epoch, unless a loaded state for it is still unused.

        So a loop over epochs that calls this method continues at the position of the state.
        """
        if self.staged is None or self.staged.epoch != epoch or self.is_used:
            self.stage(Cursor(epoch, 0))

    def mark_used(self) -> None:
        """Record that an iterator has continued from `last_staged`."""
        self.is_used = True

    def deliver(self, cursor: Cursor, began_from: Cursor | None) -> None:
        """Record that an iterator has delivered everything before a cursor.

        `began_from` is the value of `staged` when it began. A cursor staged since then stays.
        """
        self.cursor = cursor
        if self.staged is began_from:
            self.staged = None
            self.is_used = True


class StreamCursor:
    """The mutable side of a stream: where it stands, and which episodes are bad.

    Loaders over the stream read it too. The workers of a plain DataLoader have copies of it, which
    agree on their epochs by a shared table; the original stays where it is.

    Attributes:
        spec: The specification of the stream; replaced if a loaded state has other lanes.
        bad_episodes: The quarantined episodes, also of loaders over the stream.
        position: Where iterating over the stream itself stands.
    """

    def __init__(self, spec: StreamSpec, bad_episodes: BadEpisodes) -> None:
        self.spec = spec
        self.bad_episodes = bad_episodes
        self.position = Position()
        self._plan: EpochPlan | None = None
        self._epochs = EpochTable()
        # How many iterators this copy has begun in a worker.
        self._laps = 0
        self._is_read_by_loader = False

    @functools.cached_property
    def layout(self) -> SampleLayout:
        """How samples lie in a batch. Opens videos."""
        return choose_layout(self.spec.dataset)

    def choose_resources(self, num_workers: int, gpu: str | None = None) -> Resources:
        """Return the resources of this rank's workers. Opens videos."""
        plan, spec = self.plan(self.position.cursor.epoch), self.spec
        return choose_resources(
            self.layout, plan, spec.cut, spec.limits, num_workers=num_workers, gpu=gpu
        )

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch, with no episode quarantined."""
        # Threads may ask for different epochs; each uses the plan it got.
        self._plan = plan = (self._plan or self.spec.plan(epoch)).replace(epoch=epoch)
        return plan

    def current_plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch, in which others stand in for quarantined episodes."""
        return self.bad_episodes.plan_of(self.plan(epoch))

    def capture(self, cursor: Cursor) -> dict[str, Any]:
        """Return the state of a run that has delivered everything before a cursor."""
        return self.spec.capture(self.current_plan(cursor.epoch), cursor)

    def restore(self, state: Mapping[str, Any]) -> Cursor:
        """Return the cursor of a state, and quarantine its episodes here too.

        Raises StateError if the state is of another order.
        """
        spec, parsed = self.spec.restore(state)
        if spec is not self.spec:
            self.spec, self._plan = spec, None
        self.bad_episodes.add(dict.fromkeys(parsed.quarantined, "quarantined by an earlier run"))
        return parsed.cursor

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iterator, also of loaders, begin where a state stands."""
        if counts_batches(state):
            self.position.stage(Cursor(0, 0), check_batches(state))
        else:
            self.position.stage(self.restore(state))

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin an epoch, unless a loaded state for it is still unused."""
        if self._is_read_by_workers():
            self.position.mark_used()
        self.position.set_epoch(epoch)

    def begin_epoch(self, first: int, base_seed: int | None) -> tuple[int, EpochKey | None]:
        """Return the epoch of a new iterator, at least `first`, and its key if a worker begins it.

        `base_seed` is that of a plain DataLoader's iterator; None in the main process.
        """
        version = self.position.version
        if base_seed is None:
            return max(first, self._epochs.last(version) + 1), None
        key = version, base_seed, self._laps
        self._laps += 1
        return self._epochs.epoch_of(key, first), key

    def move_epoch(self, key: EpochKey | None, epoch: int) -> None:
        """Record that an iterator continues in the epoch of a state that it was given."""
        if key is not None:
            self._epochs.move(key, epoch)

    def deliver(self, cursor: Cursor, began_from: Cursor | None) -> None:
        """Record that an iterator over this stream has delivered everything before a cursor."""
        self._is_read_by_loader = False
        self.position.deliver(cursor, began_from)

    def deliver_to_loader(self, version: int) -> None:
        """Record that a loader's iterator, begun at a version of the position, has delivered."""
        self._is_read_by_loader = True
        if self.position.version == version:
            self.position.mark_used()

    def check_is_reader(self) -> None:
        """Raise StateError if a loader delivered last: this position is not the run's then."""
        if self._is_read_by_loader:
            raise StateError(
                "a StreamingDataLoader reads this stream and knows where the run stands: save "
                "loader.state_dict() instead of stream.state_dict()"
            )
        if self._is_read_by_workers():
            raise StateError(
                "worker processes of a plain DataLoader delivered the samples, and the dataset "
                "cannot see their progress. Use StreamingDataLoader, or torchdata's "
                "StatefulDataLoader, and save its state; or save {'batches_consumed': n, "
                "'batch_size': b} and load that."
            )

    def __getstate__(self) -> dict[str, Any]:
        # A copy stands where this one does, and moves on independently.
        own = {
            "bad_episodes": copy.copy(self.bad_episodes),
            "position": copy.copy(self.position),
            "_plan": None,
            "_epochs": self._epochs.for_copy(),
            "_laps": 0,
        }
        return self.__dict__ | own

    def _is_read_by_workers(self) -> bool:
        return self._epochs.last(self.position.version) >= 0


# Version of the position, base seed, and how many iterators the copy has begun before.
EpochKey = tuple[int, int, int]


class EpochTable:
    """The epochs of plain DataLoaders' iterators, in a file that forked and spawned workers share.

    A key has a lap above 0 if the worker process is kept from one iterator to the next.
    """

    def __init__(self) -> None:
        self._hold(create_memory(_NBYTES))

    def epoch_of(self, key: EpochKey, first: int) -> int:
        """Return the epoch of an iterator, the same for all its workers.

        A new version of the position begins anew at the epoch `first`.
        """
        with self._rows() as rows:
            known = _find(rows, key)
            if known is not None:
                return int(rows[known, _EPOCH])
            epoch = max(first, _last(rows, key[0]) + 1)
            turn = int(rows[:, _TURN].max()) + 1
            rows[int(rows[:, _TURN].argmin())] = *key, epoch, turn
            return epoch

    def move(self, key: EpochKey, epoch: int) -> None:
        """Record that an iterator continues in another epoch."""
        with self._rows() as rows:
            known = _find(rows, key)
            if known is not None:
                rows[known, _EPOCH] = epoch

    def last(self, version: int) -> int:
        """Return the last epoch that any worker has begun with this version; -1 if none has."""
        with self._rows() as rows:
            return _last(rows, version)

    def for_copy(self) -> EpochTable:
        """Return the table for a copy of the dataset.

        A copy made while a process is being spawned is for a worker of a plain DataLoader, and
        shares this table. Any other copy gets its own.
        """
        return self if get_spawning_popen() is not None else copy.copy(self)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            return {"path": f"/proc/{os.getpid()}/fd/{self._fd}"}
        return {"content": os.pread(self._fd, _NBYTES, 0)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "path" in state:
            self._hold(os.open(state["path"], os.O_RDWR))
        else:
            self._hold(create_memory(_NBYTES))
            os.pwrite(self._fd, state["content"], 0)

    def _hold(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    @contextmanager
    def _rows(self) -> Iterator[_Rows]:
        """Lock the table for this process, and write its rows back after the block."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            content = bytearray(os.pread(self._fd, _NBYTES, 0))
            yield np.frombuffer(content, np.int64).reshape(_ROWS, _COLUMNS)
            os.pwrite(self._fd, content, 0)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


def _find(rows: _Rows, key: EpochKey) -> int | None:
    is_it = (rows[:, [_VERSION, _SEED, _LAP]] == key).all(axis=1)
    found = np.flatnonzero(is_it & (rows[:, _TURN] > 0))
    return int(found[0]) if len(found) else None


def _last(rows: _Rows, version: int) -> int:
    own = (rows[:, _TURN] > 0) & (rows[:, _VERSION] == version)
    return int(rows[own, _EPOCH].max(initial=-1))
