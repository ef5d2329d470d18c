# SPDX-License-Identifier: Apache-2.0
"""`Normalizer`: values normalised by the statistics of their group, on any device or in workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from robostream.assemble import Affine, SourceMap, affine
from robostream.errors import SelectionError
from robostream.meta import Stats


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
        number = self._groups.index(group)
        found: dict[str, Affine] = {}
        for column in source_map.columns:
            if column.common in self._affines:
                scale, shift = self._affines[column.common][number]
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
