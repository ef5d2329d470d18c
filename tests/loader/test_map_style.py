# SPDX-License-Identifier: Apache-2.0
"""The map-style dataset against what LeRobot itself read, and everything a user may ask of it."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from robostream import EpisodeAwareSampler, LeRobotDataset
from robostream.errors import (
    FrameTimestampError,
    MetadataError,
    MissingExtraError,
    ModeError,
    SelectionError,
    VideoFileError,
)
from tests.fixture_datasets import ALL_NAMES, FIXTURES, copy_of, edit_info
from tests.parameters import long_except

# Another YUV to RGB conversion than LeRobot's may round another way: at most this many levels.
PIXEL_LEVELS = 2
# A folder of more datasets of the same kind to check, if there is one.
MORE = os.environ.get("ROBOSTREAM_FIXTURES")
ROOTS = [FIXTURES / name for name in ALL_NAMES]
if MORE:
    ROOTS += sorted(p for p in Path(MORE).iterdir() if (p / "expected").is_dir())


def open_dataset(root: Path, **options: Any) -> LeRobotDataset:
    return LeRobotDataset("some/name", root=root, **options)


def assert_equal_items(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Two samples hold the same keys and the same values, bit for bit."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert found[key].dtype == value.dtype, key
            assert torch.equal(found[key], value), key
        else:
            assert found[key] == value, key


@pytest.mark.parametrize("root", ROOTS, ids=lambda p: f"{p.parent.parent.name}-{p.name}")
@pytest.mark.parametrize("kind", ["plain", "window"])
def test_every_value_equals_what_lerobot_reads(root: Path, kind: str) -> None:
    """All keys, dtypes, shapes and values are LeRobot's; pixels too, or within two levels."""
    spec = json.loads((root / "expected" / "spec.json").read_text())
    windows = spec["delta_timestamps"] if kind == "window" else None
    levels = 0 if root.name.startswith("v21") else PIXEL_LEVELS
    dataset = open_dataset(root, delta_timestamps=windows, return_uint8=True)
    with np.load(root / "expected" / "items.npz") as arrays:
        for item in spec["indices"]:
            prefix = f"{kind}|{item}|"
            wanted = {k.removeprefix(prefix): arrays[k] for k in arrays if k.startswith(prefix)}
            texts = {
                k.removeprefix(prefix): v
                for k, v in spec["strings"].items()
                if k.startswith(prefix)
            }
            found = dataset[item]

            assert found.keys() == wanted.keys() | texts.keys()
            assert {k: found[k] for k in texts} == texts
            for key, value in wanted.items():
                got = found[key].numpy()
                if value.dtype == np.uint8 and got.dtype == np.float32:  # images of LeRobot 0.3.3
                    got = np.rint(got * 255).astype(np.uint8)
                assert (got.dtype, got.shape) == (value.dtype, value.shape), key
                if value.dtype == np.uint8:
                    worst = np.abs(got.astype(int) - value.astype(int)).max()
                    assert worst <= levels, f"{key}: {worst} levels"
                else:
                    np.testing.assert_array_equal(got, value, key)
    assert (dataset.num_frames, dataset.num_episodes) == (spec["num_frames"], spec["num_episodes"])


def test_floats_are_the_bytes_divided_by_255() -> None:
    """Without return_uint8 videos are float32 in [0, 1], exactly bytes / 255."""
    root = FIXTURES / "h264_bframes"
    floats, integers = open_dataset(root)[3], open_dataset(root, return_uint8=True)[3]
    camera = "observation.images.top"

    assert floats[camera].dtype == torch.float32
    assert torch.equal(floats[camera], integers[camera].to(torch.float32) / 255)


def test_a_window_of_one_keeps_its_axis_except_for_videos() -> None:
    """Videos lose the axis of a length-1 window; columns and stored pictures keep it."""
    deltas = {"action": [0.0], "observation.images.top": [0.0]}
    video = open_dataset(FIXTURES / "h264_bframes", delta_timestamps=deltas)[0]
    image = open_dataset(FIXTURES / "images", delta_timestamps=deltas)[0]

    assert video["observation.images.top"].shape == (3, 48, 64)
    assert image["observation.images.top"].shape == (1, 3, 48, 64)
    assert video["action"].shape == image["action"].shape == (1, 7)
    assert video["observation.images.top_is_pad"].shape == (1,)


def test_windows_stay_in_their_episode() -> None:
    """The last frame of an episode pads with itself, not with the next episode."""
    deltas = {"observation.images.front": [0.0, 1 / 30, 2 / 30], "index": [0.0, 1 / 30, 2 / 30]}
    dataset = open_dataset(FIXTURES / "h264_long_gop", delta_timestamps=deltas)
    last = dataset[39]
    stack = last["observation.images.front"]

    assert last["observation.images.front_is_pad"].tolist() == [False, True, True]
    assert last["index"].tolist() == [39, 39, 39]
    assert torch.equal(stack[0], stack[1])
    assert torch.equal(stack[0], stack[2])


def test_selected_episodes_keep_their_absolute_index() -> None:
    """Items count within the selection, `index` within the dataset."""
    dataset = open_dataset(FIXTURES / "h264_long_gop", episodes=[2, 0])
    whole = open_dataset(FIXTURES / "h264_long_gop")

    assert dataset.episodes == [0, 2]
    assert len(dataset) == 90
    assert dataset[40]["index"].item() == 75
    assert dataset.absolute_to_relative_idx is not None
    assert dataset.absolute_to_relative_idx[75] == 40
    assert whole.absolute_to_relative_idx is None
    assert_equal_items(dataset[40], whole[75])


def test_a_filter_selects_episodes() -> None:
    """episode_filter sees the episode's row."""
    dataset = open_dataset(
        FIXTURES / "h264_long_gop", episode_filter=lambda row: "open the drawer" in row["tasks"]
    )

    assert dataset.episodes == [1]
    assert {dataset[i]["task"] for i in (0, -1)} == {"open the drawer"}


def test_only_wanted_cameras_are_in_the_sample_and_read(tmp_path: Path) -> None:
    """A camera left out is not decoded: its file may be missing."""
    root = copy_of("av1_multifile", tmp_path)
    for file in (root / "videos" / "observation.images.wrist").rglob("*.mp4"):
        file.unlink()
    one = open_dataset(root, camera_keys=["observation.images.top"])[0]
    none = open_dataset(root, camera_keys=[])[0]

    assert "observation.images.wrist" not in one
    assert "observation.images.top" in one
    assert not any(key.startswith("observation.images") for key in none)


def test_image_transforms_see_each_camera_once_but_not_depth() -> None:
    """One call per camera and sample, on the whole window; depth is left alone."""
    seen: list[tuple[int, ...]] = []

    def transform(image: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(image.shape))
        return image[..., :10, :10]

    deltas = {"observation.images.top": [0.0, 0.1]}
    dataset = open_dataset(FIXTURES / "depth", image_transforms=transform, delta_timestamps=deltas)
    item = dataset[0]

    assert seen == [(2, 3, 48, 64)]
    assert item["observation.images.top"].shape == (2, 3, 10, 10)
    assert item["observation.depth.top"].shape == (1, 48, 64)
    dataset.clear_image_transforms()
    assert dataset[0]["observation.images.top"].shape == (2, 3, 48, 64)
    with pytest.raises(TypeError, match="must be callable"):
        dataset.set_image_transforms(3)  # type: ignore[arg-type]


def test_depth_in_metres_is_depth_in_millimetres_by_a_thousand() -> None:
    """The unit asked for is the unit given; millimetres are whole."""
    mm = open_dataset(FIXTURES / "depth")[4]["observation.depth.top"]
    m = open_dataset(FIXTURES / "depth", depth_output_unit="m")[4]["observation.depth.top"]

    assert torch.equal(mm, mm.round())
    assert torch.allclose(m * 1000, mm, atol=0.51)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("context", long_except(["fork", "spawn"], "fork"))
def test_a_data_loader_gives_the_same_items(workers: int, context: str) -> None:
    """Workers, forked after use or spawned, deliver what this process reads."""
    if workers == 0 and context == "spawn":
        context = "fork"
    dataset = open_dataset(FIXTURES / "av1_multifile", return_uint8=True)
    meta = dataset.meta
    sampler = EpisodeAwareSampler(
        meta.episodes["dataset_from_index"],
        meta.episodes["dataset_to_index"],
        shuffle=True,
        drop_n_last_frames=2,
    )
    expected = [
        dataset[i]
        for i in EpisodeAwareSampler(
            meta.episodes["dataset_from_index"],
            meta.episodes["dataset_to_index"],
            shuffle=True,
            drop_n_last_frames=2,
        )
    ]
    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=sampler,
        num_workers=workers,
        multiprocessing_context=context if workers else None,
    )
    found = list(loader)

    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_equal_items(one, other)


def test_a_used_dataset_pickles_small() -> None:
    """Decoders, frames and rows stay behind."""
    dataset = open_dataset(FIXTURES / "av1_multifile")
    dataset[0]
    blob = pickle.dumps(dataset)

    assert len(blob) < 30_000
    assert_equal_items(pickle.loads(blob)[5], dataset[5])


def test_a_small_row_budget_changes_nothing() -> None:
    """Pictures in Parquet that do not fit into memory are the same from the cache."""
    roomy = open_dataset(FIXTURES / "images")
    tight = open_dataset(FIXTURES / "images", row_cache_bytes=1)

    for number in np.random.default_rng(0).permutation(len(roomy)).tolist():
        assert_equal_items(tight[number], roomy[number])


def test_slices_negative_numbers_and_ends() -> None:
    """Indexing is Python's."""
    dataset = open_dataset(FIXTURES / "images")

    assert [item["index"].item() for item in dataset[3:6]] == [3, 4, 5]
    assert dataset[-1]["index"].item() == 26
    with pytest.raises(IndexError, match="27 frames"):
        dataset[27]


def test_rows_and_columns_without_pictures() -> None:
    """get_raw_item and select_columns touch no video."""
    dataset = open_dataset(FIXTURES / "h264_bframes", episodes=[1])
    row = dataset.get_raw_item(2)
    columns = dataset.select_columns(["action", "frame_index"])

    assert row["frame_index"].item() == 2
    assert "observation.images.top" not in row
    assert columns["action"].shape == (31, 7)
    assert columns["frame_index"].tolist() == list(range(31))


def test_recording_calls_on_a_dataset_opened_to_read() -> None:
    """Each says how to record instead."""
    dataset = open_dataset(FIXTURES / "images")

    with pytest.raises(ModeError, match=r"LeRobotDataset\.create"):
        dataset.add_frame({})
    with pytest.raises(ModeError, match=r"LeRobotDataset\.resume"):
        dataset.save_episode()


VIDEO = "videos/observation.images.top/chunk-000/file-000.mp4"


def test_a_missing_video(tmp_path: Path) -> None:
    """A missing file is named when a frame of it is wanted."""
    root = copy_of("h264_bframes", tmp_path)
    (root / VIDEO).unlink()

    with pytest.raises(VideoFileError, match=r"file-000\.mp4.*"):
        open_dataset(root)[0]


@pytest.mark.parametrize("keep", [0, 20, 2000, -40])
def test_a_truncated_video(tmp_path: Path, keep: int) -> None:
    """A cut file is an error that names it, whichever part is missing."""
    root = copy_of("h264_bframes", tmp_path)
    (root / VIDEO).write_bytes((root / VIDEO).read_bytes()[:keep])
    dataset = open_dataset(root)

    with pytest.raises(VideoFileError, match=r"file-000\.mp4"):
        [dataset[i] for i in range(23)]


def test_times_beyond_the_file(tmp_path: Path) -> None:
    """A table that asks for more than the video holds lists wanted, found, file and episode."""
    root = copy_of("h264_bframes", tmp_path)
    other = root / "videos/observation.images.top/chunk-000/file-001.mp4"
    (root / VIDEO).replace(other)
    edit_info(root, lambda info: None)

    with pytest.raises(FrameTimestampError, match=r"observation\.images\.top, episode 1.*file-001"):
        open_dataset(root, episodes=[1])[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": [44]}, "no episode of some/name is selected"),
        ({"camera_keys": ["top"]}, "camera_keys names top"),
        ({"camera_keys": "observation.images.top"}, "camera_keys as a list of names"),
        ({"delta_timestamps": {"nope": [0]}}, "asks for 'nope'"),
        ({"delta_timestamps": {"action": [0.01]}}, "no multiples of 1/fps"),
        ({"delta_timestamps": {"action": [float("nan")]}}, "no multiples of 1/fps.*nan"),
        ({"delta_timestamps": {"action": [float("-inf")]}}, "no multiples of 1/fps.*-inf"),
        ({"depth_output_unit": "cm"}, "must be 'm' or 'mm'"),
        ({"tolerance_s": 0}, "tolerance_s must be a number above 0"),
        ({"video_backend": "decord"}, "must be 'pyav' or 'torchcodec'"),
        (
            {"camera_keys": [], "delta_timestamps": {"observation.images.top": [0.0]}},
            "which camera_keys leaves out",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    """Bad arguments fail in the constructor, not in a worker hours later."""
    with pytest.raises(SelectionError, match=message):
        open_dataset(FIXTURES / "h264_bframes", **options)


def test_old_and_missing_video_backends(caplog: pytest.LogCaptureFixture) -> None:
    """The old name is PyAV's with a warning; torchcodec works, or names the extra at once."""
    root = FIXTURES / "h264_bframes"
    old = open_dataset(root, video_backend="video_reader")[0]
    assert "old name" in caplog.text
    assert old["observation.images.top"].shape == (3, 48, 64)
    if importlib.util.find_spec("torchcodec") is None:
        with pytest.raises(MissingExtraError, match=r"robostream\[torchcodec\]"):
            open_dataset(root, video_backend="torchcodec")
    else:
        other = open_dataset(root, video_backend="torchcodec")[0]
        gap = other["observation.images.top"] - old["observation.images.top"]
        assert gap.abs().max() <= PIXEL_LEVELS / 255 + 1e-6


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    """A dataset with no episode cannot be read, and the message says what to do."""
    features = {"action": {"dtype": "float32", "shape": (2,), "names": None}}
    LeRobotDataset.create("new/one", 10, features, root=tmp_path / "one").finalize()

    with pytest.raises(MetadataError, match="no episodes"):
        open_dataset(tmp_path / "one")
