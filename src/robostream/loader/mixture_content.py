# SPDX-License-Identifier: Apache-2.0
"""`MixtureContent`: the datasets of a mixture, what its samples have, and its statistics."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from robostream import arguments
from robostream.assemble import (
    BatchLayout,
    ImageTransforms,
    OpenedDataset,
    RowReader,
    SampleLayout,
    Schema,
    SchemaOptions,
    Source,
    SourceFeatures,
    SourceMap,
    SourceStats,
    cached_stats,
    derive_schema,
    exact_stats,
    keep_frames,
    mixed_batches,
    place_source,
    pool_stats,
    probe_cameras,
)
from robostream.batches import try_transforms
from robostream.errors import SelectionError
from robostream.loader.normalizer import Normalizer
from robostream.meta import Stats
from robostream.plan import Segments, SelectedFrames

PROBED_AT_ONCE = 16
"""How many datasets are opened at the same time: most of that is waiting for a server."""


class MixtureContent:
    """The datasets of a mixture, and what its samples have.

    Args:
        sources: The datasets, as the user gives them.
        opened: The same, opened.
        options: What the user says about samples.
        normalize: How columns are normalised, by common key.

    Attributes:
        schema: What every sample has.
        maps: How the features of each dataset become those of the schema.
        datasets: The datasets, with the features that the schema needs.
        groups: The names of all groups.
        group_numbers: The group of each dataset.
        tasks: The tasks of all datasets.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        opened: Sequence[OpenedDataset],
        options: SchemaOptions,
        normalize: Mapping[str, str],
    ) -> None:
        described = [_describe(s, dataset) for s, dataset in zip(sources, opened, strict=True)]
        self.schema, self.maps = derive_schema(described, options)
        self.datasets = [_restrict(d, m) for d, m in zip(opened, self.maps, strict=True)]
        names = [_group(s, dataset) for s, dataset in zip(sources, opened, strict=True)]
        self.groups = list(dict.fromkeys(names))
        self.group_numbers = [self.groups.index(name) for name in names]
        texts = (d.meta.tasks[n] for d in self.datasets for n in range(len(d.meta.tasks)))
        self.tasks = list(dict.fromkeys(texts))
        self._normalize = _check_normalize(normalize, self.schema)
        if normalize:
            self._normalizer  # noqa: B018  # raises for what has no statistics

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

    @functools.cached_property
    def first_episodes(self) -> list[int]:
        """The number of each dataset's episode 0 in the mixture."""
        totals = [dataset.meta.total_episodes for dataset in self.datasets]
        return [0, *np.cumsum(totals).tolist()][: len(totals)]

    def open_layout(self) -> BatchLayout:
        """Return how samples lie in a batch. Opens videos."""
        with ThreadPoolExecutor(PROBED_AT_ONCE) as pool:
            probed = list(pool.map(probe_cameras, self.datasets))
        layouts = [SampleLayout(d, p) for d, p in zip(self.datasets, probed, strict=True)]
        numbers = {text: number for number, text in enumerate(self.tasks)}
        placements = [
            place_source(
                self.schema,
                source_map,
                numbers={"dataset_index": n, "group_index": self.group_numbers[n]},
                tasks=np.array([numbers[task] for task in _tasks(dataset)], dtype=np.int64),
                scales=self._scales(n),
            )
            for n, (dataset, source_map) in enumerate(zip(self.datasets, self.maps, strict=True))
        ]
        return try_transforms(
            mixed_batches(self.schema, layouts, self.maps, placements, self.first_episodes)
        )

    def name_episode(self, episode: int) -> str:
        """Return the number of an episode in its dataset, and the dataset's name."""
        dataset = int(np.searchsorted(self.first_episodes, episode, side="right")) - 1
        name = self.datasets[dataset].meta.repo_id
        return f"{episode - self.first_episodes[dataset]} of {name}"

    @functools.cached_property
    def stats(self) -> dict[str, Stats]:
        """The statistics of each group, from the metadata."""
        members = self._members()
        return {
            group: pool_stats(
                self.schema,
                [m for m, g in zip(members, self.group_numbers, strict=True) if g == number],
            )
            for number, group in enumerate(self.groups)
        }

    def dataset_stats(self) -> list[Stats]:
        """Return the statistics of each dataset, from the metadata."""
        return [pool_stats(self.schema, [member]) for member in self._members()]

    def exact_stats(self) -> dict[str, Stats]:
        """Return the statistics of each group from all its rows."""
        content = {
            "groups": [self.groups[number] for number in self.group_numbers],
            "datasets": [dataset.meta.fingerprint for dataset in self.datasets],
            "selections": [selected_frames(dataset, 0).digest() for dataset in self.datasets],
            "columns": [[[c.own, c.common, c.dims] for c in m.columns] for m in self.maps],
        }
        return cached_stats(content, self._compute_stats)

    def _compute_stats(self) -> dict[str, Stats]:
        found: dict[str, Stats] = {}
        for number, group in enumerate(self.groups):
            own = [n for n, g in enumerate(self.group_numbers) if g == number]
            found[group] = exact_stats(
                self.schema,
                [self.maps[n] for n in own],
                lambda at, key, own=own: _read_column(self.datasets[own[at]], key),  # type: ignore[misc]
            )
        return found

    @functools.cached_property
    def _normalizer(self) -> Normalizer:
        needs_rows = "quantiles" in self._normalize.values()
        return Normalizer(self.exact_stats() if needs_rows else self.stats, self._normalize)

    def _scales(self, number: int) -> dict[str, Any]:
        if not self._normalize:
            return {}
        group = self.groups[self.group_numbers[number]]
        return self._normalizer.columns(self.maps[number], group)

    def _members(self) -> list[SourceStats]:
        pairs = zip(self.datasets, self.maps, strict=True)
        return [SourceStats(d.meta.repo_id, m, d.meta.stats) for d, m in pairs]


def selected_frames(dataset: OpenedDataset, first_episode: int) -> SelectedFrames:
    """Return a dataset's selected frames, with episodes numbered from `first_episode`."""
    kept = dataset.frames
    if kept is None:
        kept = keep_frames(dataset.meta, dataset.selection.episodes, None, 1, None)
    episodes, *rest = kept.segments.columns()
    return replace(kept, segments=Segments(episodes + first_episode, *rest))


def _check_normalize(normalize: object, schema: Schema) -> Mapping[str, str]:
    """Return `normalize=`, or raise SelectionError for what workers do not normalise."""
    wanted = '"mean_std", "min_max" or "quantiles" by common key (a dict)'
    checked: Mapping[str, str] = arguments.of_kind(normalize, "normalize", Mapping, wanted)
    floats = [vector.key for vector in schema.vectors if vector.dtype == "float32"]
    for key in checked:
        if key in [camera.key for camera in schema.cameras]:
            raise SelectionError(
                f"normalize is for numbers, and {key!r} is a camera. Normalise its images on their "
                "device, with a Normalizer."
            )
        if key not in floats:
            raise SelectionError(
                f"normalize is for features of floats, which are {', '.join(floats)}; got {key!r}"
            )
    return checked


def _describe(source: Source, dataset: OpenedDataset) -> SourceFeatures:
    features = dataset.meta.features
    left_out = {*dataset.meta.camera_keys} - {*dataset.spec.cameras}
    kept = {key: entry for key, entry in features.items() if key not in left_out}
    return SourceFeatures(dataset.meta.repo_id, kept, dataset.meta.fps, source.feature_map)


def _restrict(dataset: OpenedDataset, source_map: SourceMap) -> OpenedDataset:
    """Return a dataset that reads only what its map uses."""
    cameras = {key for key in source_map.cameras if key is not None}
    used = {column.own for column in source_map.columns} | {*source_map.texts} | cameras
    spec = dataset.spec
    spec = replace(
        spec,
        columns=tuple(key for key in spec.columns if key in used),
        videos=tuple(key for key in spec.videos if key in cameras),
        images=tuple(key for key in spec.images if key in cameras),
        windows=source_map.windows,
        resize=source_map.sizes,
    )
    return replace(dataset, spec=spec)


def _group(source: Source, dataset: OpenedDataset) -> str:
    return source.group or dataset.meta.robot_type or dataset.meta.repo_id


def _tasks(dataset: OpenedDataset) -> Iterable[str]:
    return (dataset.meta.tasks[number] for number in range(len(dataset.meta.tasks)))


def _read_column(dataset: OpenedDataset, key: str) -> Iterable[Any]:
    """Yield a column's values of the selected frames, episode by episode."""
    reader = RowReader(dataset, dataset.file_opener(), [key])
    runs = selected_frames(dataset, 0).segments
    try:
        for episode, first, count, stride in zip(
            *(c.tolist() for c in runs.columns()), strict=True
        ):
            yield reader.read(episode).numbers[key][first : first + count * stride : stride]
    finally:
        reader.close()
