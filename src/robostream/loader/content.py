# SPDX-License-Identifier: Apache-2.0
"""What a stream consists of: its datasets, and the order that the user asks for."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robostream import arguments, config
from robostream.assemble import BatchLayout, ImageTransforms, OpenedDataset
from robostream.batches import probe_layout
from robostream.plan import EpochPlan, Mixture, MixtureSource, WholeEpisodes, default_lanes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """The order that a user asks for.

    Attributes:
        content: What an epoch consists of.
        seed: Seed of the order.
        shuffle: Whether it is shuffled.
        pool_size: About how many episodes are mixed at a time.
        lanes: How many lanes it is cut into; None for a default, which follows the world size.
    """

    content: WholeEpisodes | Mixture
    seed: int
    shuffle: bool
    pool_size: int
    lanes: int | None

    def first_plan(self, world_size: int) -> EpochPlan:
        """Return the order of epoch 0, or raise SelectionError."""
        shuffle = arguments.truth(self.shuffle, "shuffle")
        return EpochPlan(
            self.content,
            seed=arguments.whole_number(self.seed, "seed", least=0),
            epoch=0,
            lanes=choose_lanes(self.lanes, self.content.num_episodes, world_size, shuffle=shuffle),
            pool_size=arguments.whole_number(self.pool_size, "episode_pool_size", 1),
            shuffle=shuffle,
        )


class StreamContent(Protocol):
    """The datasets of a stream."""

    @property
    def fingerprint(self) -> str:
        """A digest of their contents."""

    @property
    def transforms(self) -> list[ImageTransforms]:
        """The user's transforms of images."""

    def open_layout(self) -> BatchLayout:
        """Return how samples lie in a batch. Opens videos."""


class OneDataset:
    """The content of the stream of one dataset."""

    def __init__(self, dataset: OpenedDataset) -> None:
        self._dataset = dataset

    @property
    def fingerprint(self) -> str:
        """A digest of the dataset's contents."""
        return self._dataset.meta.fingerprint

    @property
    def transforms(self) -> list[ImageTransforms]:
        """The user's transform of images, if there is one."""
        transform = self._dataset.spec.image_transforms
        return [] if transform is None else [transform]

    def open_layout(self) -> BatchLayout:
        """Return how samples lie in a batch. Opens videos."""
        return probe_layout(self._dataset)


def epochs_of(dataset: OpenedDataset) -> WholeEpisodes | Mixture:
    """Return what an epoch of one dataset consists of."""
    selection, kept = dataset.selection, dataset.frames
    if kept is None:
        return WholeEpisodes(selection.lengths, selection.episodes)
    return Mixture((MixtureSource(kept, kept.num_frames),), np.zeros(1, np.int64))


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
