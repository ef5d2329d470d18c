# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robostream.decode import FrameIndex, build_index
from robostream.decode.indexing import load_index, save_index
from robostream.errors import ChangedFileError
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo, local_engine
from tests.decode.videos import KINDS

VideoMaker = Callable[[str], SampleVideo]


class Told(LocalSource):
    """A source that says of its file what it is told, and counts who asks."""

    def __init__(self, index: FrameIndex, version: str, *, more_bytes: int = 0) -> None:
        super().__init__(index.file)
        self.told = index.file_bytes + more_bytes, version
        self.looks = 0

    def size(self) -> int:
        """Return what was told."""
        self.looks += 1
        return self.told[0]

    def version(self) -> str:
        """Return what was told."""
        self.looks += 1
        return self.told[1]

    def expect(self, size: int, version: str) -> None:
        """Raise unless that is what was told."""
        if (size, version) != self.told:
            raise ChangedFileError(f"{self.name}: found {self.told}")


def assert_equal(a: FrameIndex, b: FrameIndex) -> None:
    """Compare two indices field by field, types included."""
    for name in FrameIndex.__dataclass_fields__:
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, name
            np.testing.assert_array_equal(left, right, err_msg=name)
        else:
            assert left == right, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_index_comes_back_the_same(clip: VideoMaker, kind: str, tmp_path: Path) -> None:
    """Saving and loading changes nothing."""
    index = build_index(LocalSource(clip(kind).path))
    save_index(tmp_path, index, Told(index, "v1"))
    loaded = load_index(tmp_path, Told(index, "v1"), math.inf)

    assert loaded is not None
    assert_equal(loaded, index)


def test_a_saved_index_is_small(clip: VideoMaker, tmp_path: Path) -> None:
    """An index with B-frames takes a few bytes of disk a frame beside its header."""
    index = build_index(LocalSource(clip("h264_g250").path))
    save_index(tmp_path, index, Told(index, "v1"))
    (path,) = tmp_path.iterdir()

    assert path.stat().st_size <= 4 * index.num_frames + 500


def test_an_index_of_another_size_or_name_is_not_used(clip: VideoMaker, tmp_path: Path) -> None:
    """A file that has changed is indexed anew."""
    index = build_index(LocalSource(clip("av1_g2").path))
    save_index(tmp_path, index, Told(index, "v1"))

    other = dataclasses.replace(index, file="other.mp4")
    for source in (Told(index, "v1", more_bytes=1), Told(other, "v1"), Told(index, "v2")):
        assert load_index(tmp_path, source, math.inf) is None


def test_what_was_looked_at_since_a_run_began_is_not_looked_at_again(
    clip: VideoMaker, tmp_path: Path
) -> None:
    """One look per machine and run; whoever finds another file then says so."""
    index = build_index(LocalSource(clip("av1_g2").path))
    save_index(tmp_path, index, Told(index, "v1"))
    (path,) = tmp_path.iterdir()
    os.utime(path, (1000, 1000))
    first = Told(index, "v1")
    assert load_index(tmp_path, first, 2000) is not None
    assert first.looks > 0
    second, third = Told(index, "v1"), Told(index, "v2")

    assert load_index(tmp_path, second, 2000) is not None
    assert second.looks == 0
    with pytest.raises(ChangedFileError, match="v2"):
        load_index(tmp_path, third, 2000)


def test_a_damaged_index_is_not_used(clip: VideoMaker, tmp_path: Path) -> None:
    """Cut short, overwritten or replaced by something else, a saved index counts as none."""
    index = build_index(LocalSource(clip("h264_bframes").path))
    save_index(tmp_path, index, Told(index, "v1"))
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        assert load_index(tmp_path, Told(index, "v1"), math.inf) is None
    for _ in range(30):
        damaged = bytearray(content)
        damaged[int(rng.integers(len(content)))] ^= 0xFF
        path.write_bytes(damaged)
        assert load_index(tmp_path, Told(index, "v1"), math.inf) is None


def test_the_engine_reads_a_saved_index(clip: VideoMaker, tmp_path: Path) -> None:
    """A second engine opens the file without reading its moov box."""
    video = clip("h264_bframes")
    reads: list[tuple[int, int]] = []

    class Watched(LocalSource):
        def read(self, start: int, stop: int) -> bytes:
            reads.append((start, stop))
            return super().read(start, stop)

    for expected in (1, 0):
        reads.clear()
        with local_engine(open_source=Watched, index_folder=tmp_path) as engine:
            engine.files.get(video.file)

            assert (len(reads) > 0) == bool(expected)
            out = video.slots(1)
            engine.read(video.file, [20], out)
            np.testing.assert_array_equal(out[0], video.pictures[20])


def _index_all(files: list[str], folder: Path) -> None:
    with local_engine(index_folder=folder) as engine:
        for _ in range(20):
            for file in files:
                engine.files.clear()
                assert engine.files.get(file).index.num_frames


def test_processes_share_a_folder(clip: VideoMaker, tmp_path: Path) -> None:
    """Several processes may save and load the same indices at the same time."""
    files = [clip(kind).file for kind in ("av1_g2", "h264_g2", "h264_bframes")]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_index_all, args=(files, tmp_path)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == len(files)


def test_an_index_is_neither_read_nor_written_through_a_link(
    clip: VideoMaker, tmp_path: Path
) -> None:
    """A link in place of a saved index counts as none and is replaced; new folders are private."""
    index = build_index(LocalSource(clip("av1_g2").path))
    folder = tmp_path / "indices/dataset"
    save_index(folder, index, Told(index, "1"))
    (path,) = folder.iterdir()
    content = path.read_bytes()
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")

    assert load_index(folder, Told(index, "1"), math.inf) is None
    save_index(folder, index, Told(index, "2"))
    assert not path.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == content
    assert [p.stat().st_mode & 0o777 for p in (folder.parent, folder, path)] == [
        0o700,
        0o700,
        0o600,
    ]
