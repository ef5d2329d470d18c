# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import Meter, VideoFiles
from robostream.errors import VideoFileError
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo
from tests.parameters import examples

VideoMaker = Callable[[str], SampleVideo]


@given(names=st.lists(st.sampled_from("abcdefg"), max_size=40), cap=st.integers(1, 5))
@examples(25)
def test_it_is_a_least_recently_used_cache(clip: VideoMaker, names: list[str], cap: int) -> None:
    """Hits, misses, evictions and what is held are those of an ordered dict with a cap."""
    path = clip("h264_g2").path
    meter = Meter()
    files = VideoFiles(lambda name: LocalSource(path), max_files=cap, meter=meter)
    model: OrderedDict[str, None] = OrderedDict()
    hits = evictions = 0
    for name in names:
        hits += name in model
        model[name] = None
        model.move_to_end(name)
        if len(model) > cap:
            model.popitem(last=False)
            evictions += 1
        assert files.get(name).name == name

    counted = (meter.file_hits, meter.file_misses, meter.file_evictions)
    assert counted == (hits, len(names) - hits, evictions)
    assert len(files) == len(model)


def test_a_file_is_opened_and_indexed_once(clip: VideoMaker) -> None:
    """As long as a file is held open, every call returns the same object."""
    opened: list[str] = []

    def open_source(name: str) -> LocalSource:
        opened.append(name)
        return LocalSource(name)

    files = VideoFiles(open_source, max_files=2)
    first = files.get(clip("h264_g2").file)

    assert files.get(clip("h264_g2").file) is first
    assert opened == [clip("h264_g2").file]
    assert first.index.num_frames == 48


def test_threads_open_different_files_at_a_time_and_one_file_once(clip: VideoMaker) -> None:
    """Each opening waits for the other, as a remote one does for its server; none is repeated."""
    names = [clip("h264_g2").file, clip("av1_g2").file]
    opened: list[str] = []
    both = threading.Barrier(2)

    def open_source(name: str) -> LocalSource:
        opened.append(name)
        both.wait(timeout=30)
        return LocalSource(name)

    meter = Meter()
    files = VideoFiles(open_source, max_files=2, meter=meter)
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(files.get, names * 3))

    assert sorted(opened) == sorted(names)
    assert found == found[:2] * 3
    assert (meter.file_hits, meter.file_misses, meter.file_evictions) == (4, 2, 0)


def test_a_file_that_was_let_go_can_still_be_read(clip: VideoMaker, tmp_path: Path) -> None:
    """It stays open while somebody holds it, even if it is gone from the disk."""
    path = Path(shutil.copy(clip("h264_g2").path, tmp_path))
    content = path.read_bytes()
    meter = Meter()
    files = VideoFiles(LocalSource, max_files=1, meter=meter)
    held = files.get(str(path))
    files.get(clip("av1_g2").file)
    path.unlink()

    assert meter.file_evictions == 1
    assert held.source.read(0, len(content)) == content


def test_a_failed_opening_can_be_tried_again(clip: VideoMaker, tmp_path: Path) -> None:
    """An error reaches the caller, leaves nothing behind and evicts nobody."""
    path = tmp_path / "late.mp4"
    files = VideoFiles(LocalSource, max_files=1)
    other = files.get(clip("av1_g2").file)
    with pytest.raises(VideoFileError, match=r"late\.mp4"):
        files.get(str(path))
    path.write_bytes(b"no video")
    with pytest.raises(VideoFileError, match=r"late\.mp4"):
        files.get(str(path))
    assert files.get(other.name) is other
    shutil.copy(clip("h264_g2").path, path)

    assert files.get(str(path)).index.num_frames == 48


def test_cleared_files_are_opened_again(clip: VideoMaker) -> None:
    """After clear nothing is held."""
    files = VideoFiles(LocalSource, max_files=4)
    held = files.get(clip("h264_g2").file)
    files.clear()

    assert len(files) == 0
    assert files.get(held.name) is not held


def test_a_folder_that_cannot_be_written_is_said_once(
    clip: VideoMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without kept indices things go on, only slower the next time."""
    (tmp_path / "taken").write_text("a file where a folder is wanted")
    files = VideoFiles(LocalSource, max_files=4, index_folder=tmp_path / "taken")
    with caplog.at_level(logging.WARNING):
        for kind in ("h264_g2", "av1_g2"):
            np.testing.assert_equal(files.get(clip(kind).file).index.num_frames, 48)

    assert len(caplog.records) == 1
    assert "cannot be saved" in caplog.text


def test_room_for_no_file_is_refused() -> None:
    """A limit of 0 open files is refused."""
    with pytest.raises(ValueError, match="max_files=0"):
        VideoFiles(LocalSource, max_files=0)
