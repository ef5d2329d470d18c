# SPDX-License-Identifier: Apache-2.0
"""Each sample of a mixture equals the map-style item of its dataset, after the stated mapping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robostream import LeRobotDataset, Normalizer, SelectionError, Source, StreamingDataLoader
from tests.fixture_datasets import FIXTURES
from tests.loader.mixtures import (
    NAMES,
    SIZE,
    expected_item,
    numpy_equal,
    open_mixture,
    pairs,
    unlike_sources,
)

CAMERAS = ["observation.images.top", "observation.images.wrist", "observation.depth.top"]


def map_style(**options: Any) -> list[LeRobotDataset]:
    return [LeRobotDataset("x", root=FIXTURES / name, **options) for name in NAMES]


@pytest.mark.parametrize("num_workers", [0, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_samples_equal_map_style_items(num_workers: int, device: str | None) -> None:
    """Videos and images, colour and depth, missing cameras, permuted and padded vectors, texts."""
    mixture = open_mixture()
    datasets = map_style()
    seen = set()
    loader = StreamingDataLoader(mixture, 7, num_workers=num_workers, device=device)
    for batch in loader:
        for place, (number, index) in enumerate(pairs([batch])):
            sample = {key: values[place] for key, values in batch.items()}
            wanted = expected_item(NAMES[number], datasets[number], index, sample)
            for key, value in wanted.items():
                if device == "cpu" and key in CAMERAS[:2]:
                    worst = (sample[key] - value).abs().max()  # converted by other arithmetic
                    assert worst <= 3 / 255 + 1e-6, (key, NAMES[number])
                else:
                    assert numpy_equal(sample[key], value), (key, NAMES[number], index)
            assert mixture.tasks[sample["task_index"]] == sample["task"]
            seen.add((number, index))
    loader.close()

    assert len(seen) == sum(map(len, datasets))


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_windows_are_those_of_each_dataset(num_workers: int) -> None:
    """Steps are frames of each dataset; clamped at its episodes; cameras have windows too."""
    offsets = {"action": [-1, 0, 4], "observation.images.top": [-2, 0]}
    mixture = open_mixture(delta_indices=offsets, return_uint8=False)
    rates = [dataset.fps for dataset in map_style()]
    datasets = []
    for name, fps in zip(NAMES, rates, strict=True):
        own = dict(offsets)
        if name == "h264_long_gop":
            own["observation.images.front"] = own.pop("observation.images.top")
        deltas = {key: [n / fps for n in steps] for key, steps in own.items()}
        datasets.append(LeRobotDataset("x", root=FIXTURES / name, delta_timestamps=deltas))
    loader = StreamingDataLoader(mixture, 5, num_workers=num_workers)
    for batch in loader:
        for place, (number, index) in enumerate(pairs([batch])):
            sample = {key: values[place] for key, values in batch.items()}
            wanted = expected_item(NAMES[number], datasets[number], index, sample)
            for key in ("action", "action_is_pad", *CAMERAS[:2], f"{CAMERAS[0]}_is_pad"):
                assert numpy_equal(sample[key], wanted[key]), (key, NAMES[number], index)
    loader.close()


def test_frames_are_scaled_to_the_schema() -> None:
    """One size for all datasets, with the values of map-style reading in that size."""
    schema = {"cameras": {CAMERAS[0]: list(SIZE)}}
    sources = [s for s in unlike_sources() if "images" not in s.repo_id]
    mixture = open_mixture(sources, schema=schema, return_uint8=True)
    names = [name for name in NAMES if name != "images"]
    batch = next(iter(StreamingDataLoader(mixture, 16, num_workers=0)))
    for place, (number, index) in enumerate(pairs([batch])):
        front = names[number] == "h264_long_gop"
        key = "observation.images.front" if front else CAMERAS[0]
        dataset = LeRobotDataset(
            "x", root=FIXTURES / names[number], resize={key: SIZE}, return_uint8=True
        )

        assert torch.equal(batch[CAMERAS[0]][place], dataset[index][key])
    assert CAMERAS[1] not in batch


def test_seconds_need_whole_frames_or_resampling() -> None:
    """A window at 0.1 s is not a frame at 15 fps: refused by name, or the nearest frame."""
    names = ("h264_bframes", "images")
    sources = [Source(str(FIXTURES / name)) for name in names]
    deltas = {"action": [0.0, 0.1]}
    with pytest.raises(SelectionError, match=r'images.*resample="nearest"'):
        open_mixture(sources, delta_timestamps=deltas)
    mixture = open_mixture(sources, delta_timestamps=deltas, resample="nearest")
    rows = [LeRobotDataset("x", root=FIXTURES / name, camera_keys=[]) for name in names]
    batch = next(iter(StreamingDataLoader(mixture, 32, num_workers=0)))
    for place, (number, index) in enumerate(pairs([batch])):
        step = round(0.1 * rows[number].fps)
        if not batch["action_is_pad"][place, 1]:
            assert torch.equal(batch["action"][place, 1], rows[number][index + step]["action"])


def test_values_are_normalised_in_workers_as_on_the_batch() -> None:
    """Both use the statistics of the sample's group."""
    sources = [
        Source(str(FIXTURES / name), camera_keys=[], group=group)
        for name, group in zip(NAMES, ["a", "b", "a", "b", "a"], strict=True)
    ]
    modes = {"action": "mean_std", "observation.state": "min_max"}
    plain = open_mixture(sources)
    normalise = Normalizer(plain.stats, modes)
    batches = zip(
        StreamingDataLoader(plain, 8, num_workers=0),
        StreamingDataLoader(open_mixture(sources, normalize=modes), 8, num_workers=0),
        strict=True,
    )
    for raw, normalised in batches:
        wanted = normalise(raw)
        for key in modes:
            assert torch.allclose(normalised[key], wanted[key], rtol=1e-5, atol=1e-5)
    assert plain.groups == ["a", "b"]


def test_exact_statistics_are_those_of_the_delivered_rows() -> None:
    """Quantiles, too, and only of the selected frames."""
    sources = [
        Source(str(FIXTURES / name), camera_keys=[], frames={0: [(2, 9)]}, stride=2)
        for name in NAMES
    ]
    mixture = open_mixture(sources)
    rows = torch.cat([b["action"] for b in StreamingDataLoader(mixture, 8, num_workers=0)]).numpy()
    (found,) = mixture.exact_stats().values()

    assert np.allclose(found["action"]["mean"], rows.mean(axis=0), atol=1e-5)
    assert np.allclose(found["action"]["q50"], np.quantile(rows, 0.5, axis=0), atol=1e-5)
    assert found["action"]["count"].tolist() == [len(rows)]
    assert mixture.exact_stats()["arm"]["action"]["max"].tolist() == rows.max(axis=0).tolist()


def test_missing_cameras_are_black_in_yuv_too() -> None:
    """Frames that travel as YUV 4:2:0 are black where a dataset lacks the camera."""
    mixture = open_mixture([Source(str(FIXTURES / n)) for n in ("av1_multifile", "h264_bframes")])
    for batch in StreamingDataLoader(mixture, 8, num_workers=0, device="cpu"):
        missing = batch["observation.images.wrist_is_missing"]

        assert not batch["observation.images.wrist"][missing].any()
        assert missing.tolist() == (batch["dataset_index"] == 1).tolist()


def test_cameras_are_normalised_on_their_device_only() -> None:
    """Workers normalise numbers; a camera in `normalize` is refused, not ignored."""
    with pytest.raises(SelectionError, match=r"is a camera.*with a Normalizer"):
        open_mixture(normalize={CAMERAS[0]: "mean_std"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frame_index": "min_max"}, "features of floats, .*action.*; got 'frame_index'"),
        ({"acton": "min_max"}, "features of floats, .*action.*; got 'acton'"),
        (["action"], r"normalize must be .*by common key.*; got \['action'\]"),
    ],
)
def test_what_workers_cannot_normalise_is_refused(given: Any, message: str) -> None:
    """Whole numbers would be cut to -1, 0 and 1."""
    with pytest.raises(SelectionError, match=message):
        open_mixture(normalize=given)


class Half:
    """Every second row and column."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return image[..., ::2, ::2]


def test_a_source_has_its_own_transform() -> None:
    """All must end with one size; the error names both datasets."""
    roots = [str(FIXTURES / name) for name in ("av1_multifile", "h264_bframes")]
    halves = [Source(root, transform=Half()) for root in roots]
    batch = next(iter(StreamingDataLoader(open_mixture(halves), 4, num_workers=0)))

    assert batch[CAMERAS[0]].shape == (4, 3, 24, 32)
    unlike = open_mixture([halves[0], Source(roots[1])])
    with pytest.raises(SelectionError, match=r"24, 32.* in .*av1_multifile and .*h264_bframes"):
        next(iter(StreamingDataLoader(unlike, 4, num_workers=0)))


def test_dimensions_without_names_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """They are mixed by place, if all datasets have as many."""
    roots = [str(FIXTURES / name) for name in ("av1_multifile", "h264_bframes")]
    open_mixture([Source(root) for root in roots])

    assert "action: no source names its dimensions" in caplog.text
    assert "observation.state: no source" not in caplog.text
