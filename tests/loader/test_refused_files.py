# SPDX-License-Identifier: Apache-2.0
"""Files and memory that the system or robostream refuses: the error names what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.errors import SelectionError, WorkerError
from tests.fixture_datasets import copy_of
from tests.loader.streams import open_loader, open_stream
from tests.write.recording import file_size_limit


def test_decoded_frames_are_not_written_through_a_link(tmp_path: Path) -> None:
    """A link in place of the file of decoded frames is refused; its target stays as it is."""
    root, folder = copy_of("av1_multifile", tmp_path / "one"), tmp_path / "new/frames"
    for _ in open_loader(open_stream(root, frame_cache_dir=folder), 8):
        pass
    (path,) = folder.iterdir()
    assert [p.stat().st_mode & 0o777 for p in (folder.parent, folder, path)] == [
        0o700,
        0o700,
        0o600,
    ]
    path.unlink()
    (tmp_path / "victim").write_text("mine")
    path.symlink_to(tmp_path / "victim")

    with pytest.raises(SelectionError, match="found a link"):
        next(iter(open_loader(open_stream(root, frame_cache_dir=folder), 8)))
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_limit_for_files_that_is_too_low_for_shared_memory_is_named(tmp_path: Path) -> None:
    """`ulimit -f` counts for shared memory: the error says which settings to lower."""
    root = copy_of("av1_multifile", tmp_path / "one")

    with (
        file_size_limit(4096),
        pytest.raises(WorkerError, match="Lower frame_cache_bytes, batch_size"),
    ):
        next(iter(open_loader(open_stream(root), 8)))
