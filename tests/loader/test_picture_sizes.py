# SPDX-License-Identifier: Apache-2.0
"""Pictures have their own size, whatever info.json declares."""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from robostream import LeRobotDataset
from robostream.errors import DataFileError, VideoFileError
from tests.fixture_datasets import copy_of, edit_info
from tests.loader.streams import assert_equals_map_style, flat, open_loader, open_stream

TOP = "observation.images.top"
SECOND = Path(f"videos/{TOP}/chunk-000/file-001.mp4")


def declare(root: Path, shape: list[int]) -> None:
    """Say that the pictures of all cameras are of this shape."""

    def change(info: dict[str, Any]) -> None:
        for entry in info["features"].values():
            if entry["dtype"] in ("image", "video"):
                entry["shape"] = [*shape, entry["shape"][2]]

    edit_info(root, change)


def resize(path: Path, width: int, height: int) -> None:
    """Encode a video again with pictures of another size, at the same times."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [(f.pts, f.to_ndarray(format="rgb24")) for f in container.decode(stream)]
        rate, time_base = stream.average_rate, stream.time_base
    with av.open(str(path), "w") as container:
        out = container.add_stream("libx264", rate, {"crf": "10"})
        out.width, out.height, out.pix_fmt, out.time_base = width, height, "yuv420p", time_base
        for pts, values in frames:
            image = Image.fromarray(values).resize((width, height))
            frame = av.VideoFrame.from_ndarray(np.asarray(image), format="rgb24")
            frame.pts, frame.time_base = pts, time_base
            container.mux(out.encode(frame))
        container.mux(out.encode(None))


def episodes_of(root: Path, *, file: int) -> list[int]:
    meta = LeRobotDataset("some/name", root=root).meta
    files = meta.episodes[f"videos/{TOP}/file_index"]
    return np.flatnonzero(files == file).tolist()


@pytest.mark.parametrize("name", ["av1_multifile", "images", "depth"])
@pytest.mark.parametrize("shape", [[64, 48], [7, 9]])
def test_wrongly_declared_pictures_are_delivered_as_they_are(
    name: str, shape: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Streams and items take the size of video and picture, and say once what info.json says."""
    root = copy_of(name, tmp_path)
    right = LeRobotDataset("some/name", root=root, return_uint8=True)
    wanted = {index: right[index] for index in range(0, 20, 3)}
    declare(root, shape)
    with caplog.at_level(logging.WARNING):
        stream = open_stream(root)
        batches = list(open_loader(stream, 4))
        wrong = LeRobotDataset("some/name", root=root, return_uint8=True)
        for batch in batches:
            assert_equals_map_style(batch, wrong)
    said = [r.getMessage() for r in caplog.records if "info.json declares" in r.getMessage()]

    for index, item in wanted.items():
        for key in right.meta.camera_keys:
            assert wrong[index][key].equal(item[key])
    assert len(flat(batches)) == stream.num_frames
    assert len(said) == len(right.meta.camera_keys)
    assert f"{shape[1]}x{shape[0]} (width x height), but there are some" in said[0]


def test_windows_and_workers_take_the_size_too(tmp_path: Path) -> None:
    """Batches built by worker processes, with windows and a transform, are laid out for it."""
    root = copy_of("av1_multifile", tmp_path)
    declare(root, [64, 48])
    stream = open_stream(root, delta_timestamps={TOP: [-0.1, 0.0]}, image_transforms=_halve)
    batch = next(iter(open_loader(stream, 4, num_workers=1)))

    assert tuple(batch[TOP].shape) == (4, 2, 3, 24, 32)


def test_sizes_that_differ_inside_a_camera_are_refused_by_a_stream(tmp_path: Path) -> None:
    """The error names both sizes, the file and the episode; each size alone is delivered."""
    root = copy_of("av1_multifile", tmp_path)
    resize(root / SECOND, 48, 64)
    alike = episodes_of(root, file=0)
    other = episodes_of(root, file=1)
    loader = open_loader(open_stream(root, camera_keys=[TOP]), 4)
    with pytest.raises(VideoFileError) as error:
        list(loader)
    one = list(open_loader(open_stream(root, camera_keys=[TOP], episodes=alike), 4))
    two = list(open_loader(open_stream(root, camera_keys=[TOP], episodes=other), 4))

    assert "the image is 48x64" in str(error.value)
    assert "are 64x48" in str(error.value)
    assert SECOND.name in str(error.value)
    assert any(f"episode {episode}:" in str(error.value) for episode in other)
    assert {tuple(batch[TOP].shape[1:]) for batch in one} == {(3, 48, 64)}
    assert {tuple(batch[TOP].shape[1:]) for batch in two} == {(3, 64, 48)}


def test_episodes_of_another_size_are_set_aside(tmp_path: Path) -> None:
    """With quarantine a stream goes on with the size its first episode has."""
    root = copy_of("av1_multifile", tmp_path)
    resize(root / SECOND, 48, 64)
    options: dict[str, Any] = {"camera_keys": [TOP], "on_bad_episode": "quarantine"}
    loader = open_loader(open_stream(root, **options), 4)
    delivered = [batch for _ in range(2) for batch in loader]

    assert set(loader.state_dict()["quarantined"]) == set(episodes_of(root, file=1))
    assert {tuple(batch[TOP].shape[1:]) for batch in delivered} == {(3, 48, 64)}


def test_items_have_the_size_of_their_file(tmp_path: Path) -> None:
    """Map-style items are not batched, so every one may have its own size."""
    root = copy_of("av1_multifile", tmp_path)
    resize(root / SECOND, 48, 64)
    other = set(episodes_of(root, file=1))
    dataset = LeRobotDataset("some/name", root=root, return_uint8=True)
    items = [dataset[index] for index in range(len(dataset))]

    for item in items:
        is_other = int(item["episode_index"]) in other
        assert tuple(item[TOP].shape) == ((3, 64, 48) if is_other else (3, 48, 64))


def test_pictures_in_parquet_of_two_sizes(tmp_path: Path) -> None:
    """A stream names both sizes, file and episode; items have their own."""
    root = copy_of("images", tmp_path)
    path = sorted((root / "data").rglob("*.parquet"))[-1]
    table = pq.read_table(path)
    buffer = BytesIO()
    Image.new("RGB", (20, 10)).save(buffer, "png")
    cells = table.column(TOP).to_pylist()
    cells[-1] = {"bytes": buffer.getvalue(), "path": None}
    column = pa.array(cells, table.schema.field(TOP).type)
    pq.write_table(table.set_column(table.column_names.index(TOP), TOP, column), path)
    dataset = LeRobotDataset("some/name", root=root)
    last = len(dataset) - 1
    episode = int(dataset[last]["episode_index"])
    with pytest.raises(DataFileError, match=r"20x10 \(width x height\).* are 64x48") as error:
        list(open_loader(open_stream(root), 4))

    assert f"{path.name}: {TOP}, episode {episode}" in str(error.value)
    assert tuple(dataset[last][TOP].shape) == (3, 10, 20)
    assert tuple(dataset[0][TOP].shape) == (3, 48, 64)


def _halve(pictures: Any) -> Any:
    return pictures[..., ::2, ::2]
