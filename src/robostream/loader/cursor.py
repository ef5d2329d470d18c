# SPDX-License-Identifier: Apache-2.0
"""`StreamCursor`: what a stream delivers, where it stands, and which episodes are bad."""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robostream import arguments, config
from robostream.assemble import BatchLayout, ImageTransforms, OpenedDataset
from robostream.batches import BadSampleError, WorkerBudgets
from robostream.errors import (
    DatasetError,
    ReplacedFileError,
    SelectionError,
    StateError,
    tell_where,
)
from robostream.loader.position import EpochTable, Position, Rank
from robostream.loader.resources import FrameBudget, ResourceLimits, choose_resources
from robostream.plan import (
    Cursor,
    Cut,
    EpochPlan,
    Mixture,
    MixtureSource,
    WholeEpisodes,
    capture_state,
    check_state,
    default_lanes,
    parse_state,
    quarantined_episodes,
    resume_content,
)

logger = logging.getLogger(__name__)

_POLICIES = ("raise", "quarantine")


def epochs_of(dataset: OpenedDataset) -> WholeEpisodes | Mixture:
    """Return what an epoch of one dataset consists of."""
    selection, kept = dataset.selection, dataset.frames
    if kept is None:
        return WholeEpisodes(selection.lengths, selection.episodes)
    return Mixture((MixtureSource(kept, kept.num_frames),), np.zeros(1, np.int64))


def first_plan(
    epochs: WholeEpisodes | Mixture,
    world_size: int,
    seed: int,
    pool_size: int,
    lanes: int | None,
    *,
    shuffle: bool,
) -> EpochPlan:
    """Return the order of epoch 0 that a user asks for, or raise SelectionError."""
    shuffle = arguments.truth(shuffle, "shuffle")
    return EpochPlan(
        epochs,
        seed=arguments.whole_number(seed, "seed", least=0),
        epoch=0,
        lanes=choose_lanes(lanes, epochs.num_episodes, world_size, shuffle=shuffle),
        pool_size=arguments.whole_number(pool_size, "episode_pool_size", 1),
        shuffle=shuffle,
    )


def choose_lanes(lanes: int | None, num_episodes: int, world_size: int, *, shuffle: bool) -> int:
    """Return the number of lanes: the given one, else the plan's default."""
    if lanes is None:
        return default_lanes(num_episodes, world_size, shuffle=shuffle)
    lanes = arguments.whole_number(lanes, "lanes", 1, config.MOST_LANES)
    if lanes % world_size and shuffle:
        logger.warning(
            "%d ranks cannot share %d lanes evenly: the order is exact, but each rank reads and "
            "decodes parts of about %d times as many episodes. A run begun with lanes=%d can share "
            "them evenly.",
            world_size,
            lanes,
            world_size // math.gcd(world_size, lanes),
            math.lcm(lanes, world_size),
        )
    return lanes


@dataclass(eq=False, repr=False)
class StreamCursor:
    """What a stream delivers, and the mutable side of it: where it stands, which episodes are bad.

    Loaders over the stream read it too. The workers of a plain DataLoader have copies of it, which
    agree on their epochs by a shared table; the original stays where it is.
    """

    datasets: Sequence[OpenedDataset]
    open_layout: Callable[[], BatchLayout]  # returns how samples lie in a batch; opens videos
    rank: Rank  # this process among those that share an epoch
    order: EpochPlan  # of the epoch that was asked for last, with no episode quarantined
    has_default_lanes: bool  # whether a state saved with another number of lanes replaces theirs
    limits: ResourceLimits
    bad_episodes: BadEpisodes  # also of loaders over the stream
    position: Position = field(default_factory=Position)  # of iterating over the stream itself
    epochs: EpochTable = field(default_factory=EpochTable)  # of workers of plain DataLoaders

    @functools.cached_property
    def layout(self) -> BatchLayout:
        """How samples lie in a batch. Opens videos."""
        return self.open_layout()

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the contents of all datasets; that of one is its own."""
        if len(self.datasets) == 1:
            return self.datasets[0].meta.fingerprint
        joined = "/".join(dataset.meta.fingerprint for dataset in self.datasets)
        return hashlib.blake2b(joined.encode(), digest_size=16).hexdigest()

    @property
    def transforms(self) -> list[ImageTransforms]:
        """The user's transforms of images."""
        found = (dataset.spec.image_transforms for dataset in self.datasets)
        return [transform for transform in found if transform is not None]

    @property
    def cut(self) -> Cut:
        """The rank's share, sample by sample."""
        return Cut(self.rank.rank, self.rank.world_size, 1, drop_last=False)

    def choose_resources(
        self, num_workers: int, gpu: str | None = None
    ) -> tuple[FrameBudget, WorkerBudgets]:
        """Return the memory for decoded frames, and the limits of each worker. Opens videos."""
        return choose_resources(
            self.layout, self.order, self.cut, self.limits, num_workers=num_workers, gpu=gpu
        )

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch, with no episode quarantined."""
        # Threads may ask for different epochs; each uses the plan it got.
        self.order = plan = self.order.replace(epoch=epoch)
        return plan

    def current_plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch, in which others stand in for quarantined episodes."""
        return self.bad_episodes.plan_of(self.plan(epoch))

    def capture(self, plan: EpochPlan, position: int) -> dict[str, Any]:
        """Return the state of a run that has delivered everything before a position of a plan."""
        return capture_state(plan, position, fingerprint=self.fingerprint).to_dict()

    def restore(self, state: Mapping[str, Any], *, skip_epoch: bool = False) -> Cursor:
        """Return the cursor of a state, take over its lanes, and quarantine its episodes here too.

        Raises StateError if the state is of another order. With `skip_epoch`, the rest of the
        epoch is dropped if the weights of a mixture have changed.
        """
        parsed, plan, fingerprint = parse_state(state), self.order, self.fingerprint
        content, changed = resume_content(
            parsed, plan, fingerprint=fingerprint, may_skip=skip_epoch
        )
        cursor = changed or parsed.cursor
        plan = plan.replace(content=content, epoch=cursor.epoch)
        if self.has_default_lanes and plan.lanes != parsed.lanes <= config.MOST_LANES:
            sizes = plan.num_episodes, self.rank.world_size
            plan = plan.replace(lanes=choose_lanes(parsed.lanes, *sizes, shuffle=plan.shuffle))
        if changed is None:
            check_state(parsed, plan, fingerprint=fingerprint)
        else:
            logger.warning(
                "weights, datasets or selections have changed since the state was saved; the new "
                "ones begin with epoch %d. Of epoch %d, %d of %d frames are dropped.",
                *(changed.epoch, parsed.epoch),
                *(parsed.num_frames - parsed.position if parsed.position else 0, parsed.num_frames),
            )
        self.order = plan
        bad = quarantined_episodes(parsed, content, fingerprint)
        self.bad_episodes.add(dict.fromkeys(bad, "quarantined by an earlier run"))
        return cursor

    @property
    def is_read_by_workers(self) -> bool:
        """Whether workers of a plain DataLoader have begun an epoch since the position was set."""
        return self.epochs.last(self.position.version) >= 0

    def check_is_reader(self) -> None:
        """Raise StateError if a loader delivered last: this position is not the run's then."""
        if self.position.is_read_by_loader:
            raise StateError(
                "a StreamingDataLoader reads this stream and knows where the run stands: save "
                "loader.state_dict() instead of stream.state_dict()"
            )
        if self.is_read_by_workers:
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
            "epochs": self.epochs.for_copy(),
        }
        return self.__dict__ | own


class WorkerTrace(Exception):
    """The cause of an error in a worker process; shows the traceback there."""


@dataclass(eq=False, repr=False)
class BadEpisodes:
    """The quarantined episodes, in the consumer's process.

    The plan chooses the frames of other episodes that stand in for those of a bad one. Every
    healthy frame keeps its position, so ranks stay in step, and runs with the same list have one
    order.
    """

    _policy: str
    # Returns an episode's number in its dataset, with the dataset's name in a mixture.
    _name: Callable[[int], str] = str
    _reasons: dict[int, str] = field(default_factory=dict)  # why each episode is quarantined

    def __post_init__(self) -> None:
        if self._policy not in _POLICIES:
            raise SelectionError(f"on_bad_episode must be one of {_POLICIES}, got {self._policy!r}")

    def summary(self) -> str:
        """Return how many there are, and which for each reason; empty if there are none."""
        if not self._reasons:
            return ""
        episodes: dict[str, list[int]] = {}
        for episode, reason in self._reasons.items():
            episodes.setdefault(reason, []).append(episode)
        listed = (f"{self._list(e)}: {reason}" for reason, e in episodes.items())
        return f"{len(self._reasons)} episodes are quarantined: {'; '.join(listed)}"

    def add(self, reasons: Mapping[int, str]) -> None:
        """Add the episodes that a state lists."""
        if new := sorted(set(reasons) - set(self._reasons)):
            logger.warning(
                "episodes %s stay quarantined, as they were when the state was saved; a run that "
                "begins without a state reads them again",
                self._list(new),
            )
        self._reasons = dict(reasons) | self._reasons

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reasons": dict(self._reasons)}

    def handle(self, bad: BadSampleError, plan: EpochPlan, trace: str = "") -> None:
        """Quarantine the episode of a sample that cannot be built, or raise the error.

        A replaced file is only logged: workers begin again, and read it again. `plan` is the order
        of the iterator that met it: another one may have quarantined the episode since it began.
        `trace` is the traceback in a worker process.
        """
        error = bad.error
        if isinstance(error, ReplacedFileError):
            logger.warning("%s", error)
            return
        is_new = bad.episode not in plan.quarantined
        if self._policy == "quarantine" and isinstance(error, DatasetError) and is_new:
            if bad.episode not in self._reasons:
                # A broken file is a warning once, not with each of its episodes.
                level = logging.INFO if str(error) in self._reasons.values() else logging.WARNING
                self._reasons[bad.episode] = str(error)
                logger.log(level, "episode %s is quarantined: %s", self._name(bad.episode), error)
            return
        sample = (
            f"while building the sample of episode {self._name(bad.episode)}, frame {bad.frame}, "
            f"at position {bad.position} of the epoch"
        )
        tell_where(error, sample)
        raise error from WorkerTrace(f"{sample}\n{trace}")

    def _list(self, episodes: Iterable[int]) -> str:
        return ", ".join(map(self._name, sorted(episodes)))

    def plan_of(self, plan: EpochPlan) -> EpochPlan:
        """Return the plan in which other frames stand in for those of all bad episodes."""
        return plan.replace(quarantined=sorted(self._reasons))
