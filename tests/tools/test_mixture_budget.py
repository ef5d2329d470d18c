# SPDX-License-Identifier: Apache-2.0
"""How a mixture varies, and which cameras it keeps in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robostream import MixtureDataset, Source
from robostream.meta import decoded_bytes
from robostream.plan import EpochPlan, Mixture, MixtureSource, Segments, SelectedFrames
from robostream.tools import list_mixture_cameras, share_variation
from scripts.compare_mixture import make_mixture
from tests.fixture_datasets import FIXTURES

TOP = "observation.images.top"


# A rank's 30 lanes are at 30 episodes, so one of 20 datasets has one or two of them, not 1.5.
ONE_OR_TWO = (0.75, 1.25, 2.55)


@pytest.mark.parametrize("pool_size", [64, 240])
@pytest.mark.parametrize("datasets", [2, 20])
def test_shares_vary_less_than_in_independent_draws(datasets: int, pool_size: int) -> None:
    """In batches of 64, 240 and 1,024, of all ranks together and of one of 8."""
    mixture = make_mixture(datasets, 4800 // datasets, 100, 300)
    plan = EpochPlan(mixture, seed=1, epoch=0, lanes=240, pool_size=pool_size)
    limits = {1: (0.65,) * 3, 8: (0.65,) * 3 if datasets == 2 else ONE_OR_TWO}
    for ranks, most in limits.items():
        for size, limit in zip((64, 240, 1024), most, strict=True):
            assert share_variation(plan, size, step=ranks) <= limit, (ranks, size)


def plan_of(episodes: int, *, lanes: int, shuffle: bool) -> EpochPlan:
    """Two datasets of equal size, with episodes of 50 frames."""
    sources = []
    for first in (0, episodes):
        ids = np.arange(first, first + episodes)
        segments = Segments(ids, ids * 0, ids * 0 + 50, ids * 0 + 1)
        sources.append(MixtureSource(SelectedFrames(segments), 50 * episodes, label=first))
    mixture = Mixture(tuple(sources), np.array([0, episodes]))
    return EpochPlan(mixture, seed=0, epoch=0, lanes=lanes, pool_size=24, shuffle=shuffle)


def test_dealt_datasets_vary_less_than_independent_draws() -> None:
    """Datasets one after the other vary far more; their batches have one of the two."""
    assert share_variation(plan_of(400, lanes=24, shuffle=True), 96) < 0.9
    assert share_variation(plan_of(400, lanes=1, shuffle=False), 96) > 5


def test_one_dataset_does_not_vary() -> None:
    """There is nothing to vary."""
    ids = np.arange(9)
    segments = Segments(ids, ids * 0, ids * 0 + 50, ids * 0 + 1)
    mixture = Mixture((MixtureSource(SelectedFrames(segments), 450),), np.array([0]))
    plan = EpochPlan(mixture, seed=0, epoch=0, lanes=3, pool_size=3)

    assert share_variation(plan, 16) == 0


def test_cameras_are_as_large_as_the_largest_dataset_needs() -> None:
    """Frames have the size of the schema; images in Parquet and missing cameras take no memory."""
    names = ["av1_multifile", "h264_bframes"]
    mixture = MixtureDataset(
        [Source(name, root=FIXTURES / name) for name in names],
        schema={"cameras": {TOP: [24, 32]}},
        delta_indices={TOP: [-3, 0]},
        rank=0,
        world_size=1,
    )
    (camera,) = list_mixture_cameras(mixture.schema, mixture.maps, mixture.metas)
    gops = [meta.features[TOP]["info"]["video.g"] for meta in mixture.metas]

    assert camera.frame_bytes == decoded_bytes(mixture.metas[0].features[TOP], (3, 24, 32))
    assert camera.window_frames == 3
    assert camera.gop_frames == max(gops)


def test_statistics_of_grids_are_of_their_last_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From rows as from metadata."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path))
    mixture = MixtureDataset([Source("d", root=FIXTURES / "depth")], rank=0, world_size=1)
    [recorded], [exact] = mixture.stats.values(), mixture.exact_stats().values()

    for key, entry in exact.items():
        for name in ("mean", "std", "min", "max"):
            assert entry[name] == pytest.approx(recorded[key][name].ravel(), abs=1e-5)
