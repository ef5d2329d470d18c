# SPDX-License-Identifier: Apache-2.0
"""Which process of the training run this is, where a stream or loader stands, and its copies.

A plain DataLoader does not tell its dataset that an iterator begins: each of its workers has a
copy of the dataset, new or kept, and iterates over it. But all workers of one iterator have the
same base seed, which torch draws anew for each iterator. So the first worker with a new seed gets
the next epoch, and the others look that epoch up by the seed (`EpochTable`). Reseeding torch
identically before each epoch makes torch draw the same base seed, and replays the same epoch.
"""

from __future__ import annotations

import copy
import fcntl
import os
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any, NoReturn

import cloudpickle
import torch

from robostream import arguments
from robostream.assemble import ImageTransforms
from robostream.device import create_memory
from robostream.errors import SelectionError
from robostream.plan import Cursor

# How many iterators the table remembers.
_MOST_ITERATORS = 64

# Version of the position, base seed, and how many iterators the copy has begun before. That number
# is above 0 if the worker process is kept from one iterator to the next.
EpochKey = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Rank:
    """The number of this process among the `world_size` processes that share an epoch.

    `found_in` is the source of the two numbers, for error messages.
    """

    rank: int
    world_size: int
    found_in: str

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise SelectionError(
                f"want 0 <= rank < world_size, got rank={self.rank} and "
                f"world_size={self.world_size} (from {self.found_in})"
            )


def discover_rank(rank: int | None = None, world_size: int | None = None) -> Rank:
    """Return the given rank, else Accelerate's, torch's, the environment's, else (0, 1).

    Initialises nothing: Accelerate and torch.distributed count only if the program has initialised
    them, RANK and WORLD_SIZE only if both are set, SLURM's variables only in processes that srun
    started. Raises SelectionError in a job of several tasks for a process that srun did not start.
    """
    if (rank is None) != (world_size is None):
        raise SelectionError(
            f"give both rank and world_size or neither, got rank={rank}, world_size={world_size}"
        )
    if rank is not None and world_size is not None:
        return Rank(
            arguments.whole_number(rank, "rank", 0),
            arguments.whole_number(world_size, "world_size", 1),
            "the arguments",
        )
    return (
        _from_accelerate()
        or _from_torch()
        or _from_environment("RANK", "WORLD_SIZE")
        or _from_slurm()
        or Rank(0, 1, "no launcher")
    )


def _from_accelerate() -> Rank | None:
    state = sys.modules.get("accelerate.state")
    shared = getattr(getattr(state, "PartialState", None), "_shared_state", None)
    if not shared:
        return None
    return Rank(int(shared["process_index"]), int(shared["num_processes"]), "accelerate")


def _from_torch() -> Rank | None:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return Rank(
        torch.distributed.get_rank(), torch.distributed.get_world_size(), "torch.distributed"
    )


def _from_slurm() -> Rank | None:
    """Return the rank that srun gave this process.

    Srun sets SLURM_STEP_NUM_TASKS to the number of tasks it started, which may be fewer than the
    job has. In a batch script that variable is not set, but SLURM_PROCID is 0 and SLURM_NTASKS is
    the number of tasks of the job. As a rank, a batch script would deliver only its share of the
    frames, and no process would deliver the rest.
    """
    step = _from_environment("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if step is not None:
        return step
    job = _from_environment("SLURM_PROCID", "SLURM_NTASKS")
    if job is None or job.world_size == 1:
        return None
    raise SelectionError(
        f"this process runs in a SLURM job of {job.world_size} tasks (SLURM_NTASKS) but was not "
        "started by srun (SLURM_STEP_NUM_TASKS is not set), so it is unclear whether it is alone "
        "or one of them. Start it with srun or torchrun; or, if it is alone, pass rank=0 and "
        "world_size=1, or unset SLURM_PROCID."
    )


def _from_environment(rank_name: str, world_name: str) -> Rank | None:
    rank, world = os.environ.get(rank_name), os.environ.get(world_name)
    if rank is None or world is None:
        return None
    try:
        numbers = int(rank), int(world)
    except ValueError as error:
        raise SelectionError(
            f"want whole numbers in {rank_name} and {world_name}, got {rank!r} and {world!r}"
        ) from error
    return Rank(*numbers, f"{rank_name} and {world_name}")


class Position:
    """Moves on with every delivery; beginning an iterator does not move it.

    `load_state_dict` and `set_epoch` stage a cursor, at which the next iterator begins.
    """

    def __init__(self) -> None:
        self.cursor = Cursor(0, 0)  # the next position to deliver, and its epoch
        self.staged = Cursor(0, 0)  # the cursor that was staged last
        self.is_pending = False  # whether no iterator that began there has delivered yet
        self.is_used = False  # whether an iterator, also one of a loader, has continued from there
        # Number and size of a plain DataLoader's batches, if the staged state counts those.
        self.batches_taken: tuple[int, int] | None = None
        self.version = 0  # how often a cursor was staged
        self.is_read_by_loader = False  # whether a loader delivered last, not the stream itself

    def next_start(self) -> Cursor:
        """Return where an iterator that is made now begins.

        That is the staged cursor, if it is pending. Otherwise it is the start of an epoch: of the
        one the consumer is about to begin, or of the next one if the consumer left an epoch early.
        """
        if self.is_pending:
            return self.staged
        return self.cursor if self.cursor.position == 0 else Cursor(self.cursor.epoch + 1, 0)

    def stage(self, cursor: Cursor, batches_taken: tuple[int, int] | None = None) -> None:
        """Make the next iterator begin at a cursor."""
        self.cursor = self.staged = cursor
        self.is_pending, self.is_used = True, False
        self.batches_taken = batches_taken
        self.version += 1

    def set_epoch(self, epoch: int, *, is_used: bool = False) -> None:
        """Make the next iterator begin an epoch, unless a loaded state for it is still unused.

        So a loop over epochs that calls this method continues at the position of the state. With
        `is_used`, others have continued from it.
        """
        if not self.is_pending or self.staged.epoch != epoch or self.is_used or is_used:
            self.stage(Cursor(epoch, 0))

    def deliver_to_loader(self, version: int) -> None:
        """Record that a loader's iterator, begun at a version, has delivered."""
        self.is_read_by_loader = True
        if self.version == version:
            self.is_used = True

    def deliver(self, cursor: Cursor, version: int) -> None:
        """Record that an iterator, begun at a version, has delivered everything before a cursor.

        A cursor staged since then stays.
        """
        self.cursor = cursor
        self.is_read_by_loader = False
        if self.version == version:
            self.is_pending, self.is_used = False, True


class EpochTable:
    """The epochs of plain DataLoaders' iterators, in a file that forked and spawned workers share.

    The file holds a pickled dict from keys to epochs, the oldest iterator first.
    """

    def __init__(self) -> None:
        self.__setstate__({"content": pickle.dumps({})})

    def begin(self, version: int, first: int, base_seed: int | None) -> tuple[int, EpochKey | None]:
        """Return the epoch of a new iterator, at least `first`, and its key if a worker begins it.

        All workers of an iterator get the same epoch. `base_seed` is that of a plain DataLoader's
        iterator; None in the main process. A new version of the position begins anew.
        """
        with self._locked() as epochs:
            following = max(first, _last(epochs, version) + 1)
            if base_seed is None:
                return following, None
            key = version, base_seed, self._laps
            self._laps += 1
            if key not in epochs:
                epochs[key] = following
                if len(epochs) > _MOST_ITERATORS:
                    del epochs[next(iter(epochs))]
            return epochs[key], key

    def move(self, key: EpochKey | None, epoch: int) -> None:
        """Record that an iterator continues in the epoch of a state that it was given."""
        with self._locked() as epochs:
            if key is not None and key in epochs:
                epochs[key] = epoch

    def last(self, version: int) -> int:
        """Return the last epoch that any worker has begun with this version; -1 if none has."""
        with self._locked() as epochs:
            return _last(epochs, version)

    def for_copy(self) -> EpochTable:
        """Return the table for a copy of the dataset.

        A copy made while a process is being spawned is for a worker of a plain DataLoader, and
        shares this table. Any other copy gets its own.
        """
        return self if get_spawning_popen() is not None else copy.copy(self)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            return {"path": f"/proc/{os.getpid()}/fd/{self._fd}"}
        return {"content": self._read()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._laps = 0  # iterators that this copy has begun in a worker
        if "path" in state:
            self._fd = os.open(state["path"], os.O_RDWR)
        else:
            self._fd = create_memory(0)
            os.pwrite(self._fd, state["content"], 0)
        weakref.finalize(self, os.close, self._fd)

    def _read(self) -> bytes:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0)

    @contextmanager
    def _locked(self) -> Iterator[dict[EpochKey, int]]:
        """Lock the table for this process, and write it back after the block."""
        with locked(self._fd):
            # Pickle ignores what an earlier, longer content has left after its end.
            epochs = pickle.loads(self._read())
            yield epochs
            os.pwrite(self._fd, pickle.dumps(epochs), 0)


@contextmanager
def locked(fd: int) -> Iterator[None]:
    """Lock a file for this process."""
    fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _last(epochs: dict[EpochKey, int], version: int) -> int:
    return max((epoch for key, epoch in epochs.items() if key[0] == version), default=-1)


class _ByValue:
    """Unpickles as the value itself."""

    def __init__(self, value: Any, transforms: ImageTransforms) -> None:
        self._value, self._transforms = value, transforms

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        try:
            return cloudpickle.loads, (cloudpickle.dumps(self._value),)
        except Exception as error:  # a user's object may raise anything here
            raise cannot_be_sent(self._transforms, error) from error


def for_pickle(state: dict[str, Any], transforms: ImageTransforms | None) -> Any:
    """Return the state of a dataset in the form to pickle.

    A plain DataLoader pickles its dataset for the workers that it spawns. Pickle sends only the
    name of a function, which a worker cannot find if a script or a notebook defines it. So a state
    with transforms travels by cloudpickle, which sends the function itself.
    """
    if transforms is None or get_spawning_popen() is None:
        return state
    return _ByValue(state, transforms)


def cannot_be_sent(transforms: ImageTransforms, error: Exception) -> SelectionError:
    """Return the error to raise if transforms cannot be pickled."""
    return SelectionError(
        f"image_transforms={transforms!r} cannot be sent to worker processes: "
        f"{type(error).__name__}: {error}. Create what cannot be copied in the first call, put the "
        "transform into a module as a function, or use num_workers=0."
    )


def refuse_copy() -> NoReturn:
    """Raise SelectionError for a copy of an iterator."""
    raise SelectionError(
        "an iterator cannot be copied or pickled: both would deliver from the same batches. Copy "
        "the loader or the stream, which keeps its position, and call iter() on the copy."
    )
