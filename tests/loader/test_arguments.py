# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments are refused at once, by name, with what was wanted and what was given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robostream import (
    EpisodeAwareSampler,
    LeRobotDataset,
    LeRobotDatasetMetadata,
    StreamingLeRobotDataset,
)
from robostream.errors import MetadataError, SelectionError, StateError
from robostream.loader.stream import cursor_of
from tests.fixture_datasets import copy_of
from tests.loader.streams import AV1, blind_stream, flat, open_loader, open_stream

# Of every reader: argument, wrong value, what the message says besides both of them.
READERS = [
    ("return_uint8", "yes", "True or False"),
    ("return_uint8", 1, "True or False"),
    ("force_cache_sync", "no", "True or False"),
    ("tolerance_s", "x", "a number above 0"),
    ("tolerance_s", True, "a number above 0"),
    ("tolerance_s", float("nan"), "a number above 0"),
    ("delta_timestamps", {"action": 0.05}, "a list of numbers"),
    ("delta_timestamps", {"action": "0.1"}, "a list of numbers"),
    ("delta_timestamps", {"action": ["0.1"]}, "a list of numbers"),
    ("delta_timestamps", {"action": [True]}, "a list of numbers"),
    ("delta_timestamps", [0.1], "by name"),
    ("camera_keys", 3, "a list of names"),
    ("camera_keys", [1], "a list of names"),
    ("episode_filter", "x", "callable"),
    ("resize", (0, 5), "two whole numbers from 1 to 8192"),
    ("resize", (True, 5), "two whole numbers from 1 to 8192"),
    ("resize", np.array([1.5, 2]), "two whole numbers from 1 to 8192"),
    ("resize", np.array(224), "two whole numbers from 1 to 8192"),
    ("resize", {224, 225}, "two whole numbers from 1 to 8192"),
    ("revision", 3, "a text"),
    ("token", 3, "a text"),
    ("storage_options", ["key"], "by name"),
    ("cache_dir", 3, "a path"),
]
STREAM = [
    ("shuffle", "no", "True or False"),
    ("episode_pool_size", 0, ">= 1, a whole number"),
    ("episode_pool_size", -3, ">= 1, a whole number"),
    ("episode_pool_size", 1.5, ">= 1, a whole number"),
    ("episode_pool_size", "8", ">= 1, a whole number"),
    ("lanes", "4", ">= 1 and <= 1048576, a whole number"),
    ("lanes", 2.5, ">= 1 and <= 1048576, a whole number"),
    ("lanes", True, ">= 1 and <= 1048576, a whole number"),
    ("seed", 1.5, ">= 0, a whole number"),
    ("video_decoder_cache_size", "8", ">= 1, a whole number"),
    ("video_decoder_cache_size", 0, ">= 1, a whole number"),
    ("frame_cache_dir", 3, "a path"),
    ("frame_cache_dir", __file__, "a folder"),
    ("frame_cache_dir", f"{__file__}/below", "a folder"),
    ("data_files_root", 3, "a path"),
]
LOADER = [
    ("batch_size", 10**30, ">= 1 and <= 2147483648, a whole number"),
    ("batch_size", True, ">= 1 and <= 2147483648, a whole number"),
    ("pin_memory", "x", "True or False"),
    ("drop_last", "x", "True or False"),
    ("progress", "x", "True or False"),
    ("timeout", "x", "a number of 0 or more"),
    ("timeout", -1, "a number of 0 or more"),
    ("prefetch_factor", "x", ">= 1, a whole number"),
    ("num_workers", 1.5, ">= 0, a whole number"),
]
NUMPY = {
    "delta_timestamps": {"action": np.array([0, 0.1], np.float32)},
    "tolerance_s": np.float32(1e-3),
    "return_uint8": np.True_,
    "shuffle": np.True_,
    "episode_pool_size": np.int32(3),
    "lanes": np.uint8(2),
    "seed": np.int64(7),
    "video_decoder_cache_size": np.int16(4),
    "resize": np.array([24, 32]),
}


def refused(name: str, wanted: str) -> Any:
    """Expect an error of ours that says which argument, what was wanted and what was given."""
    return pytest.raises(SelectionError, match=f"{name}.* {re.escape(wanted)}.* (got|is) ")


@pytest.mark.parametrize(("name", "value", "wanted"), [*READERS, *STREAM])
def test_streams_refuse(name: str, value: Any, wanted: str) -> None:
    """Nothing is taken for true, cut to a whole number or left to fail later."""
    with refused(name, wanted):
        open_stream(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "wanted"), [*READERS, ("download_videos", "no", "True or False")]
)
def test_map_style_datasets_refuse(name: str, value: Any, wanted: str) -> None:
    """They have the same arguments and refuse the same."""
    with refused(name, wanted):
        LeRobotDataset("some/name", root=AV1, **{name: value})


@pytest.mark.parametrize(("name", "value", "wanted"), LOADER)
def test_loaders_refuse(name: str, value: Any, wanted: str) -> None:
    """Also where the argument would do nothing."""
    with refused(name, wanted):
        open_loader(blind_stream(), **({"batch_size": 4} | {name: value}))


@pytest.mark.parametrize("kind", [StreamingLeRobotDataset, LeRobotDataset, LeRobotDatasetMetadata])
@pytest.mark.parametrize("repo_id", [AV1, None, 3], ids=repr)
def test_the_name_of_a_dataset_is_a_text(kind: type, repo_id: Any) -> None:
    """Who gives a Path is told that a text may be one."""
    with pytest.raises(SelectionError, match=r"repo_id must be a text.* a folder .* got "):
        kind(repo_id)


@pytest.mark.parametrize("value", ["x", 2, np.array([1, 2]), None], ids=repr)
def test_samplers_refuse_orders_they_do_not_have(value: Any) -> None:
    """Also what numpy compares element by element."""
    with pytest.raises(SelectionError, match="want shuffle True, False, 'uniform'"):
        EpisodeAwareSampler([0], [9], shuffle=value)


def test_samplers_refuse_a_list_of_rows() -> None:
    """Rows are looked up by frame index."""
    with refused("absolute_to_relative_idx", "by frame index"):
        EpisodeAwareSampler([0], [9], absolute_to_relative_idx=[0, 1])  # type: ignore[arg-type]


def test_numbers_of_numpy_are_taken() -> None:
    """And kept as Python's, so that states and messages are plain."""
    stream = open_stream(**NUMPY)
    loader = open_loader(stream, np.int64(4), timeout=np.inf, drop_last=np.False_)  # type: ignore[arg-type]

    assert next(iter(loader))["observation.images.top"].shape[-2:] == (24, 32)
    assert json.loads(json.dumps(loader.state_dict()))["lanes"] == 2
    assert type(stream.shuffle) is bool


@pytest.mark.parametrize(
    "item", [1.7, "1", "a", True, None, [0, 1], np.float64(1), np.array([0, 1])], ids=repr
)
def test_items_have_whole_numbers(item: Any) -> None:
    """A number is not rounded, read from a text or taken from a truth value."""
    dataset = LeRobotDataset("some/name", root=AV1, camera_keys=[])
    with pytest.raises(SelectionError, match=r"a whole number, as in dataset\[3\]; got "):
        dataset[item]
    with pytest.raises(SelectionError, match=r"a whole number, as in dataset\[3\]; got "):
        dataset.get_raw_item(item)


@pytest.mark.parametrize("item", [5, np.int32(5), np.array(5), torch.tensor(5), -57], ids=repr)
def test_items_of_any_whole_number(item: Any) -> None:
    """Samplers hand out numbers of Python, numpy and torch."""
    assert LeRobotDataset("some/name", root=AV1, camera_keys=[])[item]["index"] == 5


def test_a_stream_has_no_items() -> None:
    """Who wants them is told what has."""
    with pytest.raises(SelectionError, match=r"iterate over it.*LeRobotDataset"):
        blind_stream()[0]


@pytest.mark.parametrize("state", [None, "x", 3, [], {}, {"version": 1}], ids=repr)
def test_what_is_no_state_is_refused(state: Any) -> None:
    """By streams, loaders and samplers."""
    for target in (blind_stream(), open_loader(blind_stream(), 4), EpisodeAwareSampler([0], [9])):
        with pytest.raises(StateError):
            target.load_state_dict(state)


def test_a_count_of_batches_may_be_of_numpy() -> None:
    """But True is no count."""
    stream = blind_stream()
    stream.load_state_dict({"batches_consumed": np.int64(3), "batch_size": np.int32(4)})

    assert cursor_of(stream).position.batches_taken == (3, 4)
    with pytest.raises(StateError, match="batches_consumed"):
        stream.load_state_dict({"batches_consumed": True, "batch_size": 4})


@pytest.mark.parametrize(
    "wrong", [{"epoch": -1}, {"position": -1}, {"position": 63}, {"lanes": 0}], ids=repr
)
def test_a_state_that_stands_nowhere_is_refused(wrong: dict[str, int]) -> None:
    """And leaves the stream as it was."""
    stream = blind_stream()
    with pytest.raises(StateError):
        stream.load_state_dict(stream.state_dict() | wrong)

    assert sorted(flat(open_loader(stream, 8))) == list(range(62))


def test_a_batch_larger_than_an_epoch_is_the_epoch() -> None:
    """Memory is taken for what a batch can hold, not for what was asked for."""
    for workers in (0, 1):
        loader = open_loader(open_stream(), 10**9, num_workers=workers)

        assert [sorted(batch["index"].tolist()) for batch in loader] == [list(range(62))]
        loader.close()


def test_a_batch_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its size, and how many samples would fit."""
    monkeypatch.setattr("robostream.loader.running_pool.whole_memory", lambda: 100_000)
    stream = open_stream()

    with pytest.raises(
        SelectionError, match=r"batch_size=62: .* 1\.1 MiB.* 97\.7 KiB.* at most 5\b"
    ):
        open_loader(stream, 62)


def test_a_folder_for_pictures_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Also if it could have been when the stream was opened."""
    loaders = [
        open_loader(open_stream(frame_cache_dir=folder), 4)
        for folder in (tmp_path / "pictures", "pictures\0")
    ]
    (tmp_path / "pictures").write_bytes(b"")

    for loader in loaders:
        with pytest.raises(SelectionError, match=r"frame_cache_dir=.*pictures.*leave frame_cache"):
            next(iter(loader))


@pytest.mark.parametrize("features", [None, [1], "x", 3], ids=repr)
def test_features_are_by_name(features: Any, tmp_path: Path) -> None:
    """In info.json, and of a new dataset."""
    root = copy_of("av1_multifile", tmp_path)
    info = root / "meta/info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"features": features}))

    with pytest.raises(MetadataError, match=r"info.json: .*features.* by name.* got "):
        LeRobotDatasetMetadata("some/name", root=root)
    with pytest.raises(MetadataError, match=r"features.* by name.* got "):
        LeRobotDataset.create("some/name", 30, features, root=tmp_path / "new")
