# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures in a folder: those of this very dataset, or none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from robostream import LeRobotDataset
from robostream.errors import SelectionError
from tests.device.test_upload import recode
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import assert_equals_map_style, open_loader, open_stream


def stream_through(root: Path, folder: Path) -> float:
    """Stream an epoch, which must equal map-style reading; return the pictures decoded for it."""
    loader = open_loader(open_stream(root, frame_cache_dir=folder), 8)
    dataset = LeRobotDataset("some/name", root, return_uint8=True)
    for batch in loader:
        assert_equals_map_style(batch, dataset)
    return loader.stats()["images_decoded"]


def test_pictures_are_those_of_the_videos_there_are(tmp_path: Path) -> None:
    """Nothing is decoded again, until a video is written anew; another dataset has its own."""
    root, folder = copy_of("av1_multifile", tmp_path / "one"), tmp_path / "frames"
    assert stream_through(root, folder) > 0
    assert stream_through(root, folder) == 0
    other = copy_of("av1_multifile", tmp_path / "other")
    for path in (other / "videos").rglob("*.mp4"):
        recode(path, "yuv420p")
    assert stream_through(other, folder) > 0
    recode(next((root / "videos").rglob("*.mp4")), "yuv420p")
    assert stream_through(root, folder) > 0


def damage_file(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "bits":
        for at in range(len(content) // 2, len(content), len(content) // 10):
            content[at] ^= 0x80
    elif how == "page":
        middle = len(content) // 2 // 4096 * 4096
        content[middle : middle + 4096] = bytes(4096)
    elif how == "cut":
        del content[len(content) // 2 :]
    else:
        content = bytearray(random.Random(0).randbytes(len(content)))
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["bits", "page", "cut", "foreign"])
def test_damaged_pictures_are_decoded_again(tmp_path: Path, how: str) -> None:
    """Flipped bits, a lost page, a cut or other content cost decoding, and no pixel."""
    root, folder = FIXTURES / "av1_multifile", tmp_path / "frames"
    frames = stream_through(root, folder)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    damage_file(path, how)
    decoded = stream_through(root, folder)

    assert decoded > 0
    assert decoded == frames or how != "foreign"
    assert path.read_bytes() == content or how == "foreign"
    assert stream_through(root, folder) == 0


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """With the argument's name, whatever the disk has against it."""
    loader = open_loader(open_stream(frame_cache_dir=tmp_path / "file" / "frames"), 8)
    (tmp_path / "file").touch()

    with pytest.raises(SelectionError, match=r"frame_cache_dir=.*Not a directory"):
        next(iter(loader))


def test_a_missing_video_is_said_as_without_a_folder(tmp_path: Path) -> None:
    """When it is to be decoded."""
    root = copy_of("av1_multifile", tmp_path / "one")
    loader = open_loader(open_stream(root, frame_cache_dir=tmp_path / "frames"), 8)
    video = sorted((root / "videos").rglob("*.mp4"))[-1]
    video.unlink()
    with pytest.raises(Exception, match=video.name):
        list(loader)
