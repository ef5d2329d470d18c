# SPDX-License-Identifier: Apache-2.0
"""`MixtureDataset`: several LeRobot datasets as one ordered, resumable, distributed stream."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from robostream import arguments, config
from robostream.assemble import (
    ImageTransforms,
    OpenedDataset,
    SampleOptions,
    Schema,
    SchemaOptions,
    Source,
    SourceMap,
    choose_cache,
    open_dataset,
    read_mixture_file,
)
from robostream.device import check_decode_device
from robostream.errors import SelectionError
from robostream.loader.cursor import BadEpisodes, StreamCursor, epochs_of, first_plan
from robostream.loader.mixture_content import PROBED_AT_ONCE, MixtureContent, selected_frames
from robostream.loader.position import discover_rank
from robostream.loader.resources import ResourceLimits
from robostream.loader.stream import FrameStream
from robostream.meta import LeRobotDatasetMetadata, Stats, forward
from robostream.plan import Mixture, MixtureSource, label_dataset, share_frames

logger = logging.getLogger(__name__)

Weights = str | Mapping[str, float]
# A dataset that an epoch repeats more often than this is memorised rather than learnt.
_MOST_LAPS = 20
# The order of so long an epoch takes seconds and gigabytes.
_MOST_SEGMENTS = 20_000_000


@dataclass(frozen=True, slots=True)
class SourceShare:
    """One dataset's part in an epoch of a mixture.

    Attributes:
        name: The dataset.
        group: Its robot or embodiment.
        frames: Its selected frames.
        samples: How many samples of an epoch are its.
        share: The same as a share of the epoch.
        laps: How often an epoch delivers each of its frames.
    """

    name: str
    group: str
    frames: int
    samples: int
    share: float
    laps: float


class MixtureDataset(FrameStream):
    """Streams several datasets in given shares, in one order all ranks agree on.

    Use it with `StreamingDataLoader`, like a StreamingLeRobotDataset. Each frame is delivered floor
    or ceil of its dataset's laps per epoch, over all epochs equally often within one.

    Args:
        sources: The datasets: `Source`s, or names, paths or URLs.
        weights: Their shares of samples, if the sources have no weights: "frames" for as large as
            they are (the default), "equal", or {"temperature": t} for their frames to the power of
            1 / t.
        epoch: "cover" delivers every frame of every dataset at least once; or a number of samples.
        schema: What every sample has: "auto", or {"cameras": {key: [height, width]}, "features":
            {key: [names of dimensions]}} for what should differ from that.
        delta_timestamps: Windows by common key, in seconds relative to a frame.
        delta_indices: Windows by common key, in frames of each dataset.
        resample: "nearest" to take the nearest frame where a dataset has none at a window's time.
        normalize: "mean_std", "min_max" or "quantiles" by common key, applied in workers, by the
            statistics of each group.
        image_transforms: Applied to each camera of a sample, depth excepted, unless its source has
            a transform of its own.
        tolerance_s: How far a frame's time may be from the table's.
        episode_pool_size: About how many episodes are mixed at a time, over all ranks.
        seed: Seed of the order.
        shuffle: False for all datasets one after the other, in their own order.
        return_uint8: Cameras as uint8 instead of float32 in [0, 1].
        rank: This process's number, with `world_size`; by default found from the launcher.
        world_size: How many processes share the epoch.
        lanes: How many lanes the order is cut into.
        clip_windows: Clamp windows at the kept frames of a source instead of at the episode.
        video_decode_device: As for StreamingLeRobotDataset.
        frame_cache_bytes: As for StreamingLeRobotDataset.
        frame_cache_dir: As for StreamingLeRobotDataset.
        depth_output_unit: "mm" or "m".
        on_bad_episode: "raise", or "quarantine" to continue without it.
        cache_dir: As for StreamingLeRobotDataset.
        cache_limit: As for StreamingLeRobotDataset.
    """

    schema: Final[Schema] = forward("_content.schema", "What every sample has.")
    groups: Final[list[str]] = forward(
        "_content.groups", "The robots or embodiments, in the order of `group_index`."
    )
    tasks: Final[list[str]] = forward(
        "_content.tasks", "The tasks of all datasets, in the order of `task_index`."
    )

    stats: Final[dict[str, Stats]] = forward(
        "_content.stats",
        "The statistics of each group by common key, in LeRobot's form, from the metadata.",
    )
    dataset_stats: Final[list[Stats]] = forward(
        "_content.dataset_stats",
        "The statistics of each dataset by common key, in LeRobot's form, from the metadata.",
    )

    def __init__(
        self,
        sources: Sequence[Source | str],
        *,
        weights: Weights | None = None,
        epoch: str | int = "cover",
        schema: str | Mapping[str, Any] = "auto",
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        delta_indices: Mapping[str, Sequence[int]] | None = None,
        resample: str | None = None,
        normalize: Mapping[str, str] | None = None,
        image_transforms: ImageTransforms | None = None,
        tolerance_s: float = config.TOLERANCE_S,
        episode_pool_size: int = config.EPISODE_POOL_SIZE,
        seed: int = config.SEED,
        shuffle: bool = True,
        return_uint8: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        lanes: int | None = None,
        clip_windows: bool = False,
        video_decode_device: str = "cpu",
        frame_cache_bytes: int | str = "auto",
        frame_cache_dir: str | Path | None = None,
        depth_output_unit: str = "mm",
        on_bad_episode: str = "raise",
        cache_dir: str | Path | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        check_decode_device(video_decode_device)
        listed = _check_sources(sources)
        options = SampleOptions(
            tolerance_s=tolerance_s,
            return_uint8=return_uint8,
            depth_output_unit=depth_output_unit,
            image_transforms=image_transforms,
            clip_windows=clip_windows,
        )
        cache = choose_cache(cache_dir, cache_limit)
        with ThreadPoolExecutor(PROBED_AT_ONCE) as pool:
            opened = list(pool.map(lambda source: _open(source, options, cache), listed))
        windows = SchemaOptions(schema, delta_timestamps, delta_indices, tolerance_s, resample)
        content = MixtureContent(listed, opened, windows, normalize or {})
        mixture = _mix(listed, content, weights, epoch, shuffle=shuffle)
        self._mixture, self._content = mixture, content
        # The epochs of one dataset, each frame once, are those of a stream.
        is_plain = [s.count for s in mixture.sources] == [mixture.sources[0].frames.num_frames]
        epochs = epochs_of(content.datasets[0]) if is_plain else mixture
        place = discover_rank(rank, world_size)
        order = (place.world_size, seed, episode_pool_size, lanes)
        cursor = StreamCursor(
            content.datasets,
            content.open_layout,
            place,
            first_plan(epochs, *order, shuffle=shuffle),
            lanes is None,
            ResourceLimits(frame_cache_bytes, frame_cache_dir, None),
            BadEpisodes(on_bad_episode, content.name_episode),
        )
        super().__init__(cursor, f"mixture of {len(listed)} datasets", video_decode_device)
        self._log_shares()

    @classmethod
    def from_file(cls, path: str | Path, **others: Any) -> MixtureDataset:
        """Return the mixture that a YAML file describes; `others` are arguments beside the file's.

        Keys of the file are the arguments of this class and of `Source`.
        """
        return cls(**{**read_mixture_file(path), **others})

    @property
    def metas(self) -> list[LeRobotDatasetMetadata]:
        """The metadata of each dataset."""
        return [dataset.meta for dataset in self._content.datasets]

    @property
    def maps(self) -> list[SourceMap]:
        """How the features of each dataset become those of the schema."""
        return list(self._content.maps)

    @property
    def shares(self) -> list[SourceShare]:
        """Each dataset's part in an epoch."""
        names = [dataset.meta.repo_id for dataset in self._content.datasets]
        groups = [self.groups[number] for number in self._content.group_numbers]
        return [
            SourceShare(
                name,
                group,
                frames=(frames := source.frames.num_frames),
                samples=source.count,
                share=source.count / self._mixture.num_frames,
                laps=source.count / frames,
            )
            for name, group, source in zip(names, groups, self._mixture.sources, strict=True)
        ]

    def exact_stats(self) -> dict[str, Stats]:
        """Return the statistics of each group from all its rows, with exact quantiles.

        Reads all data files once; the result is saved in the user's cache folder.
        """
        return self._content.exact_stats()

    def __repr__(self) -> str:
        cursor = self._cursor.position.cursor
        return (
            f"MixtureDataset({[share.name for share in self.shares]}, frames={self.num_frames}, "
            f"lanes={self.lanes}, rank={self.rank} of {self.world_size}, epoch={cursor.epoch}, "
            f"position={cursor.position})"
        )

    def _log_shares(self) -> None:
        for share in self.shares:
            level = logging.WARNING if share.laps > _MOST_LAPS else logging.INFO
            logger.log(
                level,
                "%s: %d frames, %.2f %% of samples, %.3g laps an epoch%s",
                *(share.name, share.frames, 100 * share.share, share.laps),
                "; a policy may memorise it" if share.laps > _MOST_LAPS else "",
            )


def _check_sources(sources: Sequence[Source | str]) -> list[Source]:
    wanted = "a list of Sources, or of names, paths or URLs of datasets"
    listed = list(arguments.of_kind(sources, "sources", Sequence, wanted))
    if isinstance(sources, str) or not listed:
        raise SelectionError(f"sources must be {wanted}; got {sources!r:.200}")
    for source in listed:
        arguments.of_kind(source, "a source", Source | str | Path, "a Source or a name")
    return [s if isinstance(s, Source) else Source(str(s)) for s in listed]


def _open(source: Source, options: SampleOptions, cache: Any) -> OpenedDataset:
    """Return a source, opened with all its features."""
    own = replace(
        options,
        episodes=source.episodes,
        episode_filter=source.episode_filter,
        camera_keys=source.camera_keys,
        frames=source.frames,
        stride=source.stride,
        episode_weights=source.episode_weights,
        image_transforms=source.transform or options.image_transforms,
    )
    return open_dataset(source.location(cache), own)


def _mix(
    sources: Sequence[Source],
    content: MixtureContent,
    weights: Weights | None,
    epoch: str | int,
    *,
    shuffle: bool,
) -> Mixture:
    """Return the content of the mixture's epochs, or raise SelectionError."""
    firsts = content.first_episodes
    frames = [selected_frames(d, n) for d, n in zip(content.datasets, firsts, strict=True)]
    counts = _counts(sources, [f.num_frames for f in frames], weights, epoch)
    is_plain = counts == [f.num_frames for f in frames] and all(f.weights is None for f in frames)
    if not (shuffle or is_plain):
        raise SelectionError(
            "without a shuffle, datasets follow one after the other, each frame once: leave the "
            'weights out, and epoch="cover"'
        )
    # Shuffles are labelled by content, so that other datasets may be added.
    names = [dataset.meta.fingerprint for dataset in content.datasets]
    labels = [label_dataset(name, names[:at].count(name)) for at, name in enumerate(names)]
    mixture = Mixture(tuple(map(MixtureSource, frames, counts, labels)), np.array(firsts))
    laps = [count / own.num_frames for count, own in zip(counts, frames, strict=True)]
    if mixture.num_segments > _MOST_SEGMENTS and max(laps) > _MOST_LAPS:
        name = sources[laps.index(max(laps))].repo_id
        raise SelectionError(
            f"an epoch of {mixture.num_frames:,} samples repeats {name!r} {max(laps):,.0f} times, "
            "which is too long to plan. Give weights that are closer together, or a number of "
            "samples: epoch=1_000_000."
        )
    return mixture


def _counts(
    sources: Sequence[Source], frames: Sequence[int], weights: Weights | None, epoch: str | int
) -> list[int]:
    """Return how many samples of an epoch are of each dataset."""
    shares = _relative_shares(sources, frames, weights)
    if epoch == "cover":
        return share_frames(frames, shares)
    if not arguments.is_whole(epoch) or epoch < len(frames):
        raise SelectionError(
            f'epoch must be "cover" or a number of samples, at least one of each of {len(frames)} '
            f"datasets; got {epoch!r}"
        )
    total = int(epoch)
    counts = share_frames(frames, shares, total=total)
    if 0 in counts:
        name = sources[counts.index(0)].repo_id
        raise SelectionError(f"an epoch of {total} samples has none of {name!r}; make it longer")
    return counts


def _relative_shares(
    sources: Sequence[Source], frames: Sequence[int], weights: Weights | None
) -> Sequence[float]:
    """Return the share of samples of each dataset, relative to the others."""
    own = [source.weight for source in sources if source.weight is not None]
    if own and len(own) < len(sources):
        lacking = next(source.repo_id for source in sources if source.weight is None)
        raise SelectionError(f"some sources have a weight, but {lacking!r} has none; give all one")
    if own and weights is not None:
        raise SelectionError(f"sources have weights, so leave weights={weights!r:.200} out")
    if own:
        return own
    if weights is None or weights == "frames":
        return frames
    if weights == "equal":
        return [1] * len(frames)
    if isinstance(weights, Mapping) and [*weights] == ["temperature"]:
        temperature = arguments.number(weights["temperature"], "the temperature of weights")
        shares = [math.exp(math.log(count / max(frames)) / temperature) for count in frames]
        if 0 not in shares:
            return shares
    raise SelectionError(
        f'weights must be "frames", "equal" or {{"temperature": number}}, with a share above 0 for '
        f"each dataset; got {weights!r:.200}. A "
        "number for each dataset is an argument of its Source: Source(..., weight=2.0)."
    )
