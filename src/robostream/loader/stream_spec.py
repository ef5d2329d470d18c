# SPDX-License-Identifier: Apache-2.0
"""`StreamSpec`: what a stream delivers, in which order and within which limits. Immutable."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream import arguments, config
from robostream.assemble import (
    ArrayLayout,
    CameraLayout,
    ImageTransforms,
    OpenedDataset,
    SampleLayout,
    probe_cameras,
)
from robostream.batches import preserve_generators, transform_images
from robostream.errors import SelectionError
from robostream.loader.ranks import Rank
from robostream.loader.resources import ResourceLimits
from robostream.plan import (
    Cursor,
    Cut,
    EpochPlan,
    PlanState,
    capture_state,
    check_state,
    default_lanes,
    parse_state,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The specification of a stream. Positions belong to streams, loaders and iterators.

    Attributes:
        dataset: The opened dataset: its files, the selected frames, the content of a sample.
        rank: This process among those that share an epoch.
        seed: The seed of the order.
        shuffle: Whether the order is shuffled.
        episode_pool_size: About how many episodes are mixed at a time.
        lanes: How many lanes the order is cut into.
        has_default_lanes: Whether `lanes` is the default. It follows the world size, so a state
            saved with another world size replaces it.
        limits: The resources that a rank may use.
        video_decode_device: The device that decodes videos, as the user named it.
    """

    dataset: OpenedDataset
    rank: Rank
    seed: int
    shuffle: bool
    episode_pool_size: int
    lanes: int
    has_default_lanes: bool
    limits: ResourceLimits
    video_decode_device: str

    @property
    def num_frames(self) -> int:
        """Frames of the selected episodes."""
        return self.dataset.selection.num_frames

    @property
    def num_samples(self) -> int:
        """Samples that this rank delivers in an epoch."""
        return -(-self.num_frames // self.rank.world_size)

    @property
    def cut(self) -> Cut:
        """The rank's share, sample by sample."""
        return Cut(self.rank.rank, self.rank.world_size, 1, drop_last=False)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch, with no episode quarantined."""
        selection = self.dataset.selection
        return EpochPlan(
            selection.lengths,
            episodes=selection.episodes,
            seed=self.seed,
            epoch=epoch,
            lanes=self.lanes,
            pool_size=self.episode_pool_size,
            shuffle=self.shuffle,
        )

    def capture(self, plan: EpochPlan, cursor: Cursor) -> dict[str, Any]:
        """Return the state of a run at a cursor in the epoch of a plan."""
        fingerprint = self.dataset.meta.fingerprint
        return capture_state(plan, cursor.position, fingerprint=fingerprint).to_dict()

    def restore(self, state: Mapping[str, Any]) -> tuple[StreamSpec, PlanState]:
        """Return the state, checked, and this specification with the state's lanes.

        Raises StateError if the state is of another order.
        """
        parsed, spec = parse_state(state), self
        if self.has_default_lanes and self.lanes != parsed.lanes <= config.MOST_LANES:
            sizes = len(self.dataset.selection.episodes), self.rank.world_size
            lanes = choose_lanes(parsed.lanes, *sizes, shuffle=self.shuffle)
            spec = dataclasses.replace(self, lanes=lanes)
        check_state(parsed, spec.plan(parsed.epoch), fingerprint=self.dataset.meta.fingerprint)
        return spec, parsed


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


def choose_layout(dataset: OpenedDataset) -> SampleLayout:
    """Return how samples lie in a batch. Opens videos.

    Frames have the size of those in the first selected episode. The user's transform is tried on
    black frames.
    """
    layout = SampleLayout(dataset, probed=probe_cameras(dataset))
    transform = dataset.spec.image_transforms
    if transform is None:
        return layout
    found = {
        camera.key: _try_transform(transform, camera, number)
        for number, camera in enumerate(layout.cameras)
        if camera.is_transformed
    }
    return layout.after_transform(found)


def _try_transform(transform: ImageTransforms, camera: CameraLayout, number: int) -> ArrayLayout:
    black = np.zeros(camera.shape, camera.dtype)
    try:
        with preserve_generators(transform):
            result = transform_images(transform, black, key=(0, 0, 0, number))
    except SelectionError:
        raise
    except Exception as error:
        raise SelectionError(
            f"image_transforms failed on a black frame of {camera.key}, shape {camera.shape}, type "
            f"{black.dtype}: {type(error).__name__}: {error}"
        ) from error
    return result.shape, result.dtype
