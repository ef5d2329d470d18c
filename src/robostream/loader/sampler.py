# SPDX-License-Identifier: Apache-2.0
"""`EpisodeAwareSampler`: which frames of a map-style dataset an epoch visits, in which order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from robostream import arguments
from robostream.errors import SelectionError, StateError
from robostream.plan import Cursor, Cut, advance, permute

logger = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]
# Takes positions start to stop (exclusive) of one epoch; returns the numbers of the frames there.
_Order = Callable[[int, int], Int64Array]

# Positions become frame indices this many at a time: enough to make numpy's cost per call small,
# few enough to take little memory.
_BLOCK_POSITIONS = 4096
_NAMED_EPISODES = 10


class SamplerState(TypedDict):
    """The next frame to hand out.

    Attributes:
        epoch: Its epoch.
        start_index: Its position in that epoch's order.
    """

    epoch: int
    start_index: int


@dataclass(frozen=True, slots=True)
class KeptFrames:
    """The frames to visit, numbered from 0 in dataset order, without a list of them."""

    ends: Int64Array  # for each episode, the number after its last frame's
    shifts: Int64Array  # for each episode, the difference between a frame's index and its number
    relative: Mapping[int, int] | None  # the rows of frame indices, if there are some episodes only

    def __len__(self) -> int:
        return int(self.ends[-1])

    def indices(self, numbers: Int64Array) -> list[int]:
        """Return the dataset's indices of the frames with these numbers."""
        shifts = self.shifts[self.ends.searchsorted(numbers, "right")]
        found: list[int] = (numbers + shifts).tolist()
        return found if self.relative is None else [self.relative[index] for index in found]


@dataclass(slots=True)
class _Pass:
    """One iteration over an epoch."""

    epoch: int
    position: int  # of the next frame to hand out
    is_loaded: bool = False  # whether `load_state_dict` gave the position
    has_begun: bool = False

    def run(self, frames: KeptFrames, order: _Order) -> Iterator[int]:
        """Yield the frame indices from the position on."""
        self.has_begun = True
        while self.position < len(frames):
            stop = min(self.position + _BLOCK_POSITIONS, len(frames))
            for index in frames.indices(order(self.position, stop)):
                self.position += 1
                yield index


class EpisodeAwareSampler:
    """Hands a DataLoader the frame indices of the chosen episodes, one epoch per iteration.

    The order of an epoch is a function of (seed, epoch). It is the same on every rank, so
    Accelerate's batch sharding has nothing to synchronise. `shuffle=True` (or "uniform") gives the
    order of LeRobot's sampler with the same seed; it takes 8 bytes per frame while an epoch runs.
    "constant_memory" is another permutation, computed a few positions at a time, for very large
    datasets. Everything else takes memory in proportion to the number of episodes.

    Each iteration visits one epoch and the next one the following epoch, whether or not the first
    was finished. An iteration begins when its first index is drawn.

    `state_dict` counts the indices *handed out*. DataLoader workers and Accelerate draw batches
    ahead, so the training step has often consumed less: with those, save
    `compute_sampler_state(step, ...)`, which counts the steps taken, or use torchdata's
    StatefulDataLoader, which saves this sampler's state for the batches it has delivered.

    Args:
        dataset_from_indices: The first frame index of each episode.
        dataset_to_indices: The frame index after the last of each episode.
        episode_indices_to_use: The episodes to visit, in any order; None for all.
        drop_n_first_frames: Frames left out at the start of every episode.
        drop_n_last_frames: Frames left out at the end of every episode.
        shuffle: False for dataset order, or which permutation to use.
        seed: A number of 0 or more that the order of every epoch derives from.
        absolute_to_relative_idx: For a dataset that holds some episodes only, its row for each
            frame index of the whole dataset.
    """

    def __init__(
        self,
        dataset_from_indices: npt.ArrayLike,
        dataset_to_indices: npt.ArrayLike,
        episode_indices_to_use: npt.ArrayLike | None = None,
        drop_n_first_frames: int = 0,
        drop_n_last_frames: int = 0,
        shuffle: bool | Literal["uniform", "constant_memory"] = False,
        seed: int = 0,
        absolute_to_relative_idx: Mapping[int, int] | None = None,
    ) -> None:
        orders = (True, False, "uniform", "constant_memory")
        if not isinstance(shuffle, bool | np.bool_ | str) or shuffle not in orders:
            raise SelectionError(
                f"want shuffle True, False, 'uniform' or 'constant_memory', got {shuffle!r}"
            )
        self._kept = keep_frames(
            dataset_from_indices,
            dataset_to_indices,
            episode_indices_to_use,
            drop_first=drop_n_first_frames,
            drop_last=drop_n_last_frames,
            relative=absolute_to_relative_idx,
        )
        self._pass = _Pass(0, 0)
        self.shuffle: bool | str = shuffle
        self.seed: int = arguments.whole_number(seed, "seed", 0)

    def __len__(self) -> int:
        """Return the frames of a whole epoch, even if it resumes in the middle."""
        return len(self._kept)

    def __repr__(self) -> str:
        state = self.state_dict()
        return (
            f"EpisodeAwareSampler(episodes={len(self._kept.ends)}, frames={len(self)}, "
            f"shuffle={self.shuffle!r}, seed={self.seed}, epoch={state['epoch']}, "
            f"position={state['start_index']})"
        )

    def __iter__(self) -> Iterator[int]:
        """Yield the frame indices of the next epoch, or of the rest of a loaded state's epoch."""
        if self._pass.has_begun:
            self._pass = _Pass(self._pass.epoch + 1, 0)
        # An iterator that was made before this one may still be in use. It continues with its own
        # pass, and the state no longer follows it.
        yield from self._pass.run(self._kept, self._order(self._pass.epoch))

    @property
    def indices(self) -> list[int]:
        """All frame indices of an epoch in dataset order; takes memory for every frame."""
        return self._kept.indices(np.arange(len(self)))

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration visit `epoch`.

        After `load_state_dict`, the epoch of the state changes nothing. Any other epoch raises
        StateError until an iteration has begun: Accelerate's loaders call this with their own count
        of epochs, which starts at 0 in every process and would silently undo a resume.
        """
        epoch = arguments.whole_number(epoch, "epoch", 0)
        current = self._pass
        if current.is_loaded and not current.has_begun and epoch != current.epoch:
            raise StateError(
                f"set_epoch({epoch}) would undo the resume at epoch {current.epoch}, sample "
                f"{current.position}. Under Accelerate, call set_epoch({current.epoch}) on the "
                "prepared loader before iterating (it counts epochs from 0 itself); to start "
                f"elsewhere, load_state_dict({{'epoch': {epoch}, 'start_index': 0}})."
            )
        if current.has_begun or epoch != current.epoch:
            self._pass = _Pass(epoch, 0)

    def state_dict(self) -> SamplerState:
        """Return the epoch and the position of the next frame to hand out.

        After the last frame of an epoch, that is the start of the next epoch. A loaded state is
        returned unchanged until an iteration begins.
        """
        current = self._pass
        if current.has_begun and current.position == len(self):
            return {"epoch": current.epoch + 1, "start_index": 0}
        return {"epoch": current.epoch, "start_index": current.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration begin where a state, of this class or LeRobot's, stands.

        If the state stands at the end of an epoch, that iteration is empty, like LeRobot's, and the
        one after it visits the next epoch.
        """
        start = _checked(state, len(self))
        self._pass = _Pass(start["epoch"], start["start_index"], is_loaded=True)

    def _order(self, epoch: int) -> _Order:
        """Return the order of an epoch as a function from positions to frames."""
        if not self.shuffle:
            return np.arange
        # LeRobot's seed of an epoch, and its order.
        sequence = np.random.SeedSequence([self.seed, epoch])
        key = int(sequence.generate_state(1, dtype=np.uint64)[0])
        if self.shuffle == "constant_memory":
            return lambda start, stop: permute(np.arange(start, stop), len(self), key)
        generator = torch.Generator().manual_seed(key)
        frames: Int64Array = torch.randperm(len(self), generator=generator).numpy()
        return lambda start, stop: frames[start:stop]


def compute_sampler_state(
    step: int,
    num_frames: int,
    batch_size: int,
    num_processes: int,
    *,
    start: SamplerState | None = None,
) -> SamplerState:
    """Return the state of an `EpisodeAwareSampler` after `step` training steps. Pure.

    A step takes one batch on each process, with Accelerate's defaults (`even_batches=True`,
    `split_batches=False`) and `drop_last=False`: the frames that fill up the last step of an epoch
    are repeats, and do not count. Gradient accumulation does not matter; a step is one batch.

    Args:
        step: Steps taken since `start`.
        num_frames: Frames of an epoch, `len(sampler)`.
        batch_size: Frames of one process's batch.
        num_processes: Processes that read different batches.
        start: Where counting began; the start of epoch 0 if None. A run that resumed with another
            batch size or world size counts from its resume.
    """
    frames = arguments.whole_number(num_frames, "num_frames", 1)
    began = _checked(start or {"epoch": 0, "start_index": 0}, frames)
    cut = Cut(
        rank=0,
        world_size=arguments.whole_number(num_processes, "num_processes", 1),
        batch_size=arguments.whole_number(batch_size, "batch_size", 1),
        drop_last=False,
    )
    cursor = Cursor(began["epoch"], began["start_index"])
    cursor = advance(cut, frames, cursor, arguments.whole_number(step, "step", 0))
    return {"epoch": cursor.epoch, "start_index": cursor.position}


def _checked(state: Mapping[str, Any], num_frames: int) -> SamplerState:
    """Return a state within `num_frames` frames, or raise StateError."""
    if not isinstance(state, Mapping) or not {"epoch", "start_index"} <= set(state):
        raise StateError(f"a sampler state has epoch and start_index, got {state!r:.200}")
    try:
        epoch, start = (arguments.whole_number(state[k], k, 0) for k in ("epoch", "start_index"))
    except SelectionError as error:
        raise StateError(f"{error} in the sampler state {dict(state)!r}") from error
    if start > num_frames:
        raise StateError(
            f"want start_index in 0 to {num_frames} (the sampler's frames), got {start}. The state "
            "is of another dataset, episode selection or drop_n_first_frames/drop_n_last_frames."
        )
    return {"epoch": epoch, "start_index": start}


def keep_frames(
    starts: npt.ArrayLike,
    stops: npt.ArrayLike,
    episodes: npt.ArrayLike | None,
    *,
    drop_first: int,
    drop_last: int,
    relative: Mapping[int, int] | None,
) -> KeptFrames:
    """Return the frames of `episodes` (None: of all) that remain after the drops.

    Raises SelectionError for episodes that do not exist, or if no frame remains.
    """
    first, after = _episode_bounds(starts, stops)
    used = _used_episodes(episodes, len(first))
    first = first + arguments.whole_number(drop_first, "drop_n_first_frames", 0)
    lengths = after - arguments.whole_number(drop_last, "drop_n_last_frames", 0) - first
    kept = _kept_episodes(used, lengths)
    first, lengths = first[kept], lengths[kept]
    by_index = "rows by frame index (a dict)"
    arguments.of_kind(relative, "absolute_to_relative_idx", Mapping | None, by_index)
    if relative is not None:
        _check_subset(kept, first, first + lengths - 1, relative)
    ends = np.cumsum(lengths)
    return KeptFrames(ends=ends, shifts=first - (ends - lengths), relative=relative)


def _episode_bounds(starts: npt.ArrayLike, stops: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
    """Return each episode's first frame index and the one after its last."""
    first, after = (
        np.array(arguments.whole_numbers(numbers, name), dtype=np.int64)
        for numbers, name in ((starts, "dataset_from_indices"), (stops, "dataset_to_indices"))
    )
    if first.shape != after.shape:
        raise SelectionError(
            "want one dataset_from_index and one dataset_to_index per episode, got "
            f"{len(first)} and {len(after)}"
        )
    for episode in np.flatnonzero(after < first)[:1]:
        raise SelectionError(
            f"episode {episode} ends at frame {after[episode]}, before its start "
            f"{first[episode]}: dataset_from_indices and dataset_to_indices do not belong together"
        )
    return first, after


def _used_episodes(episodes: npt.ArrayLike | None, num_episodes: int) -> Int64Array:
    """Return the episodes to use, ascending; raise SelectionError for unknown ones."""
    if episodes is None:
        return np.arange(num_episodes)
    wanted = arguments.whole_numbers(episodes, "episode_indices_to_use")
    unknown = [episode for episode in wanted if not 0 <= episode < num_episodes]
    if unknown:
        raise SelectionError(
            f"episode_indices_to_use names {_listed(unknown)}, but the dataset has {num_episodes} "
            "episodes, numbered from 0"
        )
    return np.unique(np.array(wanted, dtype=np.int64))


def _kept_episodes(used: Int64Array, lengths: Int64Array) -> Int64Array:
    """Return the episodes to use that keep a frame; `lengths` are those of all episodes."""
    has_frames = lengths[used] > 0
    kept, emptied = used[has_frames], used[~has_frames]
    if emptied.size:
        logger.warning(
            "%s of the %d chosen: skipped, as drop_n_first_frames and drop_n_last_frames leave no "
            "frame",
            _listed(emptied.tolist()).capitalize(),
            used.size,
        )
    if not kept.size:
        raise SelectionError(
            f"No valid frames remain: {used.size} episodes were chosen of {lengths.size}, and the "
            f"dropped first and last frames emptied {emptied.size} of them. Choose other episodes "
            "or drop fewer frames."
        )
    return kept


def _check_subset(
    kept: Int64Array, first: Int64Array, last: Int64Array, relative: Mapping[int, int]
) -> None:
    """Raise SelectionError for episodes whose first or last frame the dataset does not hold."""
    absent = [
        episode
        for episode, a, b in zip(kept.tolist(), first.tolist(), last.tolist(), strict=True)
        if a not in relative or b not in relative
    ]
    if absent:
        raise SelectionError(
            f"absolute_to_relative_idx has no row for frames of {_listed(absent)}: the "
            "dataset was opened with other episodes. Pass episode_indices_to_use=dataset.episodes."
        )


def _listed(episodes: Sequence[int]) -> str:
    """Return the first few episode numbers for a message."""
    named = ", ".join(str(episode) for episode in episodes[:_NAMED_EPISODES])
    more = len(episodes) - _NAMED_EPISODES
    noun = "episodes" if len(episodes) > 1 else "episode"
    return f"{noun} {named}" + (f" and {more} more" if more > 0 else "")
