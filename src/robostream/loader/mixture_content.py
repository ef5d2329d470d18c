# SPDX-License-Identifier: Apache-2.0
"""`MixtureContent`: the datasets of a mixture, its statistics, and values normalised by them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from robostream import arguments
from robostream.assemble import (
    Affine,
    BatchLayout,
    OpenedDataset,
    RowReader,
    SampleLayout,
    Schema,
    SchemaOptions,
    Source,
    SourceFeatures,
    SourceMap,
    SourceStats,
    affine,
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
from robostream.meta import Stats
from robostream.plan import Segments, SelectedFrames

PROBED_AT_ONCE = 16
"""How many datasets are opened at the same time: most of that is waiting for a server."""


class MixtureContent:
    """The datasets of a mixture, and what its samples have."""

    def __init__(
        self,
        sources: Sequence[Source],
        opened: Sequence[OpenedDataset],
        options: SchemaOptions,
        normalize: Mapping[str, str],
    ) -> None:
        described = [_describe(s, dataset) for s, dataset in zip(sources, opened, strict=True)]
        self.schema, self.maps = derive_schema(described, options)
        # With the features that the schema needs.
        self.datasets = [_restrict(d, m) for d, m in zip(opened, self.maps, strict=True)]
        # The number of each dataset's episode 0 in the mixture.
        totals = [dataset.meta.total_episodes for dataset in self.datasets]
        self.first_episodes: list[int] = [0, *np.cumsum(totals[:-1], dtype=np.int64).tolist()]
        pairs = zip(sources, opened, strict=True)
        names = [s.group or d.meta.robot_type or d.meta.repo_id for s, d in pairs]
        self.groups = list(dict.fromkeys(names))
        self.group_numbers = [self.groups.index(name) for name in names]  # one for each dataset
        self._members = {
            group: [number for number, name in enumerate(names) if name == group]
            for group in self.groups
        }
        self.tasks = list(dict.fromkeys(text for d in self.datasets for text in _tasks(d)))
        modes = _check_normalize(normalize, self.schema)
        stats: dict[str, Stats] = {}
        if modes:
            stats = self.exact_stats() if "quantiles" in modes.values() else self.stats
        self._normalizer = Normalizer(stats, modes)

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
                numbers={"dataset_index": n, "group_index": group},
                tasks=np.array([numbers[task] for task in _tasks(dataset)], dtype=np.int64),
                scales=self._normalizer.columns(source_map, self.groups[group]),
            )
            for n, (dataset, source_map, group) in enumerate(
                zip(self.datasets, self.maps, self.group_numbers, strict=True)
            )
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
        recorded = self._recorded_stats()
        return {
            group: pool_stats(self.schema, [recorded[number] for number in numbers])
            for group, numbers in self._members.items()
        }

    @property
    def dataset_stats(self) -> list[Stats]:
        """The statistics of each dataset, from the metadata."""
        return [pool_stats(self.schema, [own]) for own in self._recorded_stats()]

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
        def compute(numbers: list[int]) -> Stats:
            maps = [self.maps[number] for number in numbers]
            return exact_stats(
                self.schema, maps, lambda at, key: _read_column(self.datasets[numbers[at]], key)
            )

        return {group: compute(numbers) for group, numbers in self._members.items()}

    def _recorded_stats(self) -> list[SourceStats]:
        pairs = zip(self.datasets, self.maps, strict=True)
        return [(d.meta.repo_id, m, d.meta.stats) for d, m in pairs]


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


class Normalizer:
    """Normalises batches of a mixture, each sample by the statistics of its group.

    A normalised value is value * scale + shift. Padded dimensions and missing cameras stay 0.

    Args:
        stats: Statistics by group, in the order of `group_index`, such as `mixture.stats`.
        modes: "mean_std", "min_max" or "quantiles" by common key: mean 0 and deviation 1, or the
            bounds (min and max, or q01 and q99) at -1 and 1.
    """

    def __init__(self, stats: Mapping[str, Stats], modes: Mapping[str, str]) -> None:
        self._groups = list(stats)
        self._affines: dict[str, list[Affine]] = {}
        self._tensors: dict[tuple[str, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}
        for key, mode in modes.items():
            lacking = [group for group in stats if key not in stats[group]]
            if lacking:
                raise SelectionError(
                    f"no statistics of {key!r} in group {lacking[0]!r}, which has "
                    f"{', '.join(stats[lacking[0]]) or 'none'}. Compute them from rows: "
                    "mixture.exact_stats(), or robostream stats DATASET --write."
                )
            self._affines[key] = [affine(entry[key], mode, key) for entry in stats.values()]

    def __repr__(self) -> str:
        return f"Normalizer(groups={self._groups}, keys={list(self._affines)})"

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with normalised values; it needs `group_index` and any of the keys."""
        return self._apply(batch, lambda values, scale, shift: values * scale + shift)

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with the original values of normalised ones, such as actions."""
        return self._apply(batch, lambda values, scale, shift: (values - shift) / scale)

    def columns(self, source_map: SourceMap, group: str) -> dict[str, Affine]:
        """Return scale and shift of a source's own dimensions, by own key of numeric features."""
        found: dict[str, Affine] = {}
        for column in source_map.columns:
            if column.common in self._affines:
                scale, shift = self._affines[column.common][self._groups.index(group)]
                place = slice(None) if column.dims is None else list(column.dims)
                found[column.own] = scale[place], shift[place]
        return found

    def _apply(self, batch: Mapping[str, Any], formula: Any) -> dict[str, Any]:
        result = dict(batch)
        for key in self._affines:
            if key not in batch:
                continue
            values, index = batch[key], batch["group_index"]
            if values.dtype == torch.uint8:  # images; statistics are those of values in [0, 1]
                values = values.float() / 255
            scale, shift = (part[index.to(values.device)] for part in self._on(key, values.device))
            # A sample's statistics lie along its last axes; windows have an axis before them.
            inner = scale.shape[1:] if values.ndim > 1 else ()
            between = (1,) * (values.ndim - 1 - len(inner))
            shape = (len(values), *between, *inner)
            done = formula(values, scale.reshape(shape), shift.reshape(shape))
            result[key] = _blank(done, key, batch)
        return result

    def _on(self, key: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if (key, device) not in self._tensors:
            scales, shifts = (np.stack(part) for part in zip(*self._affines[key], strict=True))
            self._tensors[key, device] = (
                torch.from_numpy(scales).to(device),
                torch.from_numpy(shifts).to(device),
            )
        return self._tensors[key, device]


def _blank(values: torch.Tensor, key: str, batch: Mapping[str, Any]) -> torch.Tensor:
    """Return the values with 0 in padded dimensions and missing cameras."""
    is_pad = batch.get(f"{key}_dim_is_pad")
    if is_pad is not None:
        between = (1,) * (values.ndim - is_pad.ndim)
        is_pad = is_pad.reshape(len(values), *between, *is_pad.shape[1:])
    elif (is_missing := batch.get(f"{key}_is_missing")) is not None:
        is_pad = is_missing.reshape(-1, *(1,) * (values.ndim - 1))
    return values if is_pad is None else values.masked_fill(is_pad.to(values.device), 0)
