# SPDX-License-Identifier: Apache-2.0
"""Pictures at the size a policy takes: scaled once, and the same however they are read."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from robostream import LeRobotDataset
from robostream.decode import scale_values
from robostream.errors import SelectionError
from robostream.loader.stream import cursor_of
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import AV1, assert_equals_map_style, flat, open_loader, open_stream
from tests.loader.test_picture_sizes import SECOND, resize
from tests.parameters import long_except

TOP, WRIST, DEPTH = "observation.images.top", "observation.images.wrist", "observation.depth.top"
# Even, odd, larger, one side alone, tiny.
SIZES = [(24, 32), (33, 45), (100, 90), (48, 20), (5, 4)]


def open_items(root: Path, **options: Any) -> LeRobotDataset:
    return LeRobotDataset("some/name", root=root, **({"return_uint8": True} | options))


@pytest.mark.parametrize("size", long_except(SIZES, *SIZES[:2]))
@pytest.mark.parametrize("name", ["av1_multifile", "h264_bframes", "h264_long_gop", "depth"])
def test_streams_and_items_agree(name: str, size: tuple[int, int]) -> None:
    """Every codec, colour and depth: all frames once, each the map-style item's, bit for bit."""
    root = FIXTURES / name
    stream, items = open_stream(root, resize=size), open_items(root, resize=size)
    batches = list(open_loader(stream, 4))
    for batch in batches:
        assert_equals_map_style(batch, items)

    assert sorted(flat(batches)) == list(range(stream.num_frames))
    for key in stream.meta.camera_keys:
        assert tuple(batches[0][key].shape[-2:]) == size


@pytest.mark.parametrize("frame_cache_bytes", [0, "20KiB", "1GiB"])
def test_kept_pictures_are_the_resized_ones(frame_cache_bytes: int | str) -> None:
    """Nothing kept, some kept, all kept in shared memory by workers: one result."""
    size = (24, 32)
    stream = open_stream(resize=size, frame_cache_bytes=frame_cache_bytes)
    items = open_items(AV1, resize=size)
    loader = open_loader(stream, 4, num_workers=2)
    for _ in range(2):
        for batch in loader:
            assert_equals_map_style(batch, items)

    loader.close()


def test_memory_shrinks_with_the_pictures() -> None:
    """Batches, kept pictures and what lanes need are counted at the delivered size."""
    streams = cursor_of(open_stream()), cursor_of(open_stream(resize=(24, 16)))
    (_, own), (_, small) = (stream.choose_resources(1) for stream in streams)
    ratio = 48 * 64 / (24 * 16)
    for before, after in zip(*(stream.layout.cameras for stream in streams), strict=True):
        assert before.cached_bytes / after.cached_bytes == ratio
        assert before.decoded_bytes == after.decoded_bytes

    assert own.shared is not None
    assert small.shared is not None
    assert small.shared.sizes == ((16, 24), (16, 24))
    assert sum(own.shared.slot_bytes) / sum(small.shared.slot_bytes) == ratio


@pytest.mark.parametrize("size", [(33, 45), (34, 45), (33, 46)])
def test_pictures_of_odd_sizes_are_kept_too(size: tuple[int, int]) -> None:
    """With room for all of them, the second epoch decodes nothing."""
    loader = open_loader(open_stream(resize=size), 4)
    list(loader)
    before = loader.stats()["images_decoded"]
    list(loader)

    assert loader.stats()["images_decoded"] == before > 0


def test_a_file_of_kept_pictures_belongs_to_one_size(tmp_path: Path) -> None:
    """Another size is another file; the same size finds its pictures."""
    for size in [(24, 32), (32, 24), (24, 32)]:
        stream = open_stream(resize=size, frame_cache_dir=tmp_path)
        items = open_items(AV1, resize=size)
        for batch in open_loader(stream, 8):
            assert_equals_map_style(batch, items)

    assert len(list(tmp_path.iterdir())) == 2


def test_cameras_may_have_sizes_of_their_own() -> None:
    """Those not named keep theirs, and the features say what is delivered."""
    stream, items = open_stream(resize={WRIST: (20, 30)}), open_items(AV1, resize={WRIST: (20, 30)})
    batch = next(iter(open_loader(stream, 3)))
    assert_equals_map_style(batch, items)

    assert tuple(batch[TOP].shape) == (3, 3, 48, 64)
    assert tuple(batch[WRIST].shape) == (3, 3, 20, 30)
    for dataset in (stream, items):
        assert dataset.features[TOP]["shape"] == (48, 64, 3)
        assert dataset.meta.shapes[WRIST] == (20, 30, 3)
        assert dataset.meta.info.features[WRIST]["shape"] == (48, 64, 3)


def test_a_resized_stream_goes_on_from_any_state() -> None:
    """The size is no part of the order: states and fingerprints know nothing of it."""
    loader = open_loader(open_stream(), 4)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = flat(batches)
    other = open_loader(open_stream(resize=(24, 32)), 4)
    other.load_state_dict(state)

    assert flat(other) == rest


def test_its_own_size_changes_nothing() -> None:
    """Asked for the size they have, pictures are those of a plain stream."""
    plain = open_items(AV1)
    for batch in open_loader(open_stream(resize=(48, 64)), 4):
        assert_equals_map_style(batch, plain)


@pytest.mark.parametrize("return_uint8", [True, False])
def test_windows_transforms_and_types(return_uint8: bool) -> None:
    """A window's pictures are resized each, then the transform is called with them."""
    shapes: list[tuple[int, ...]] = []

    def halve(pictures: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(pictures.shape))
        return pictures[..., ::2, ::2]

    options: dict[str, Any] = {
        "resize": (24, 32),
        "delta_timestamps": {TOP: [-0.1, 0.0]},
        "image_transforms": halve,
        "return_uint8": return_uint8,
    }
    items = open_items(AV1, **options)
    batch = next(iter(open_loader(open_stream(AV1, **options), 4)))
    assert_equals_map_style(batch, items)

    assert tuple(batch[TOP].shape) == (4, 2, 3, 12, 16)
    assert batch[TOP].dtype == (torch.uint8 if return_uint8 else torch.float32)
    assert set(shapes) == {(2, 3, 24, 32), (3, 24, 32)}


def test_depth_takes_the_nearest() -> None:
    """Every resized distance is one of the source, where torch's nearest-exact finds it."""
    own, small = (open_items(FIXTURES / "depth", resize=size) for size in (None, (31, 40)))
    for index in range(0, len(own), 5):
        wanted = interpolate(own[index][DEPTH][None], (31, 40), mode="nearest-exact")[0]

        assert torch.equal(small[index][DEPTH], wanted)


@pytest.mark.parametrize("size", SIZES)
def test_pictures_in_parquet(size: tuple[int, int]) -> None:
    """PNG pictures are scaled in their own 8 bits and then divided, as video is."""
    root = FIXTURES / "images"
    own, small = open_items(root), open_items(root, resize=size)
    for batch in open_loader(open_stream(root, resize=size), 4):
        assert_equals_map_style(batch, small)
    for index in range(0, len(own), 9):
        levels = (own[index][TOP] * 255).round().to(torch.uint8).numpy()
        wanted = torch.from_numpy(scale_values(levels, size)).float() / 255

        assert torch.equal(small[index][TOP], wanted)


def test_sizes_that_differ_inside_a_camera_become_one(tmp_path: Path) -> None:
    """Videos and pictures in Parquet of several sizes can be batched when they are resized."""
    videos, pictures = copy_of("av1_multifile", tmp_path), copy_of("images", tmp_path)
    resize(videos / SECOND, 48, 64)
    path = sorted((pictures / "data").rglob("*.parquet"))[-1]
    table, buffer = pq.read_table(path), BytesIO()
    Image.new("RGB", (20, 10), "red").save(buffer, "png")
    cells = table.column(TOP).to_pylist()
    cells[-1] = {"bytes": buffer.getvalue(), "path": None}
    column = pa.array(cells, table.schema.field(TOP).type)
    pq.write_table(table.set_column(table.column_names.index(TOP), TOP, column), path)
    for root in (videos, pictures):
        stream, items = (opened(root, resize=(24, 32)) for opened in (open_stream, open_items))
        batches = list(open_loader(stream, 4))
        for batch in batches:
            assert_equals_map_style(batch, items)

        assert len(flat(batches)) == stream.num_frames


def test_pictures_are_near_those_of_torch() -> None:
    """Brightness is torch's antialiased resize of the full picture; colour is coarser, not off."""
    brightness = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    own, small = (open_items(AV1, resize=size) for size in (None, (24, 32)))
    for index in range(0, len(own), 7):
        full = own[index][TOP][None].float()
        off = small[index][TOP] - interpolate(full, (24, 32), mode="bilinear", antialias=True)[0]
        error = float((off * brightness).sum(dim=0).square().mean())

        assert 10 * np.log10(255**2 / error) > 38
        assert off.mean(dim=(1, 2)).abs().max() < 1


def test_info_json_is_not_touched(tmp_path: Path) -> None:
    """Chunk settings written by a resized dataset leave the declared shapes as they are."""
    root = copy_of("av1_multifile", tmp_path)
    dataset = open_items(root, resize=(24, 32))
    dataset.meta.update_chunk_settings(chunks_size=7)
    again = open_items(root)

    assert again.meta.chunks_size == 7
    assert again.features[TOP]["shape"] == (48, 64, 3)
    assert again.meta.fingerprint == dataset.meta.fingerprint


@pytest.mark.parametrize("opened", [open_stream, open_items])
def test_bad_sizes_are_refused_at_the_call(opened: Any) -> None:
    """Both readers say so before anything is read."""
    with pytest.raises(SelectionError, match=r"resize must be \(height, width\)"):
        opened(AV1, resize=224)
