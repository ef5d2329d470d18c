# SPDX-License-Identifier: Apache-2.0
"""A normaliser does the same in workers and on a device, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robostream import Normalizer
from robostream.assemble import (
    SchemaOptions,
    SourceFeatures,
    derive_schema,
    pool_stats,
)
from robostream.errors import SelectionError
from robostream.meta import DEFAULT_FEATURES, column_stats

ROWS = 6
MODES = ["mean_std", "min_max", "quantiles"]
OWN = [["a", "b"], ["c", "a"], ["b"]]
GROUPS = ["arm", "arm", "hand"]
TOP = "observation.images.top"


@pytest.fixture
def mixed() -> tuple[Any, list[Any], list[np.ndarray[Any, Any]], dict[str, Any]]:
    """Three datasets in two groups: schema, maps, own rows, statistics by group."""
    random = np.random.default_rng(0)
    rows = [random.normal(5, 3, (ROWS, len(own))).astype(np.float32) for own in OWN]
    rows[2] = rows[2][:, 0]  # a plain number
    described = [
        SourceFeatures(
            f"org/{n}",
            {"x": {"dtype": "float32", "shape": (len(own),), "names": own}} | DEFAULT_FEATURES,
            10,
            {},
        )
        for n, own in enumerate(OWN)
    ]
    schema, maps = derive_schema(
        described, SchemaOptions(schema={"features": {"x": ["a", "b", "c"]}})
    )
    members = [(f"org/{n}", maps[n], {"x": column_stats(rows[n])}) for n in range(3)]
    stats = {
        group: pool_stats(schema, [m for m, g in zip(members, GROUPS, strict=True) if g == group])
        for group in dict.fromkeys(GROUPS)
    }
    return schema, maps, rows, stats


def batch_of(maps: list[Any], rows: list[Any], scaled: Any = None) -> dict[str, torch.Tensor]:
    """Return the rows of all datasets in one batch, as workers write it; scaled if they do that."""
    values = np.zeros((3 * ROWS, 3), np.float32)
    is_pad = np.ones((3 * ROWS, 3), bool)
    for n, own in enumerate(rows):
        part = slice(n * ROWS, (n + 1) * ROWS)
        (column,) = [c for c in maps[n].columns if c.common == "x"]
        scale, shift = scaled[n][column.own] if scaled else (1, 0)
        column.write(own * scale + shift, values[part])
        column.write(np.zeros_like(own, bool), is_pad[part])
    index = [0] * (2 * ROWS) + [1] * ROWS
    return {
        "x": torch.from_numpy(values),
        "x_dim_is_pad": torch.from_numpy(is_pad),
        "group_index": torch.tensor(index),
        "task": ["t"] * 3 * ROWS,  # type: ignore[dict-item]
    }


@pytest.mark.parametrize("mode", MODES)
def test_workers_and_devices_agree_and_the_inverse_restores(mode: str, mixed: Any) -> None:
    """Scale and shift of own dimensions give what the whole batch gives; padding stays 0."""
    _, maps, rows, stats = mixed
    normalizer = Normalizer(stats, {"x": mode})
    scaled = [normalizer.columns(maps[n], GROUPS[n]) for n in range(3)]
    batch = batch_of(maps, rows)
    on_device, in_workers = normalizer(batch), batch_of(maps, rows, scaled)

    assert not torch.equal(on_device["x"], batch["x"])
    torch.testing.assert_close(on_device["x"], in_workers["x"])
    torch.testing.assert_close(normalizer.inverse(on_device)["x"], batch["x"])
    assert on_device["x"][batch["x_dim_is_pad"]].abs().sum() == 0
    assert on_device["task"] is batch["task"]


def test_each_group_has_its_own_mean(mixed: Any) -> None:
    """Over the rows of a group, a dimension that all its datasets have has mean 0, deviation 1."""
    _, maps, rows, stats = mixed
    normalized = Normalizer(stats, {"x": "mean_std"})(batch_of(maps, rows))["x"]
    for values in (normalized[: 2 * ROWS, 0], normalized[2 * ROWS :, 1]):
        assert values.mean().item() == pytest.approx(0, abs=1e-5)
        assert values.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_windows_numbers_and_cameras_have_their_own_axes() -> None:
    """Statistics apply along the last axes of a vector, and to the channels of images."""
    stats = {
        "arm": {
            "x": {"mean": np.array([1.0, 2.0]), "std": np.array([2.0, 4.0])},
            "reward": {"mean": np.array([1.0]), "std": np.array([2.0])},
            TOP: {"mean": np.full((3, 1, 1), 0.5), "std": np.full((3, 1, 1), 0.25)},
        }
    }
    normalizer = Normalizer(stats, dict.fromkeys(stats["arm"], "mean_std"))
    batch = {
        "x": torch.tensor([3.0, 6.0]).expand(2, 5, 2),
        "reward": torch.tensor([3.0, 5.0]),
        TOP: torch.ones(2, 4, 3, 6, 8),
        f"{TOP}_is_missing": torch.tensor([False, True]),
        "group_index": torch.tensor([0, 0]),
    }
    done = normalizer(batch)
    windows = normalizer({"reward": torch.tensor([[3.0, 5.0]]), "group_index": torch.tensor([0])})

    assert done["x"].unique().tolist() == [1.0]
    assert done["x"].shape == (2, 5, 2)
    assert done["reward"].tolist() == [1.0, 2.0]
    assert windows["reward"].tolist() == [[1.0, 2.0]]
    assert done[TOP][0].unique().tolist() == [2.0]
    assert done[TOP][1].unique().tolist() == [0.0]
    whole = normalizer(batch | {TOP: torch.full((2, 4, 3, 6, 8), 255, dtype=torch.uint8)})
    assert torch.equal(whole[TOP], done[TOP])


def test_what_cannot_be_normalised_is_refused(mixed: Any) -> None:
    """The error names the key, and the group that lacks statistics."""
    stats = mixed[3]
    with pytest.raises(SelectionError, match=r"no statistics of 'y' in group 'arm', which has x"):
        Normalizer(stats, {"y": "mean_std"})
