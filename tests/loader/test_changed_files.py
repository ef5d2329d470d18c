# SPDX-License-Identifier: Apache-2.0
"""A dataset that somebody changes while it is read: an error that names the file, never a mix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from robostream.errors import ChangedFileError
from tests.fixture_datasets import copy_of
from tests.loader.streams import open_loader, open_stream
from tests.parameters import long_except

VIDEO = "videos/observation.images.top/chunk-000/file-001.mp4"


def write_over(path: Path) -> None:
    """Other bytes, as many as before."""
    content = bytearray(path.read_bytes())
    with path.open("r+b") as file:
        file.write(bytes(byte ^ 255 for byte in content))


def cut_off(path: Path) -> None:
    os.truncate(path, 600)


def replace(path: Path) -> None:
    """A new file in its place, as a copy of the dataset that is brought up to date."""
    aside = path.with_suffix(".new")
    aside.write_bytes(path.read_bytes())
    os.utime(aside, (1, 1))
    aside.replace(path)


@pytest.mark.parametrize("workers", long_except([0, 2], 0))
@pytest.mark.parametrize("on_bad_episode", ["raise", "quarantine"])
@pytest.mark.parametrize("change", [write_over, cut_off])
def test_a_video_that_changes_ends_the_run(
    tmp_path: Path, change: Callable[[Path], None], on_bad_episode: str, workers: int
) -> None:
    """It is not taken for a bad one, and no picture of the new content is delivered."""
    root = copy_of("av1_multifile", tmp_path)
    stream = open_stream(root, frame_cache_bytes=0, on_bad_episode=on_bad_episode)
    loader = open_loader(stream, 2, num_workers=workers)
    assert len(list(loader)) == 31  # every worker has read its files
    for path in root.glob("videos/**/*.mp4"):
        change(path)

    with pytest.raises(ChangedFileError, match=r"file-00\d\.mp4: the file was changed while"):
        list(loader)


@pytest.mark.parametrize("change", [write_over, cut_off, replace])
def test_a_file_that_is_opened_again_is_the_one_it_was(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Also if it was closed between, to make room for others."""
    door = open_stream(copy_of("av1_multifile", tmp_path))._dataset.file_opener()
    before = door.open(VIDEO).read(0, 500)
    assert door.open(VIDEO).read(0, 500) == before
    change(Path(door.open(VIDEO).name))

    with pytest.raises(ChangedFileError, match=r"file-001\.mp4: the file was changed while"):
        door.open(VIDEO).read(0, 500)
