# SPDX-License-Identifier: Apache-2.0
"""Files are recognised by their bytes, not by their names."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.storage import LocalSource, as_location
from robostream.tools.diagnose.file import check_file, recognise, top_boxes
from tests.fixture_datasets import FIXTURES
from tests.parameters import examples

CLIP = FIXTURES / "h264_bframes/videos/observation.images.top/chunk-000/file-000.mp4"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a1b\nsize 23456789\n"
HEADS = {
    "empty": b"",
    "lfs_pointer": LFS_POINTER,
    "annex_pointer": b"../../.git/annex/objects/xW/9k/SHA256E-s9--ab.mp4",
    "web_page": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "server_message": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "zeros": bytes(512),
    "mp4": b"\0\0\0\x20ftypisom\0\0\2\0",
    "parquet": b"PAR1\x15\x04\x15",
    "other_format": b"\x1aE\xdf\xa3\x9fB\x86\x81",
    "unknown": b"\x07\x08 no such thing",
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_file_is_recognised_by_its_first_bytes(kind: str) -> None:
    """Videos, tables, pointers and messages saved as videos are distinguished."""
    assert recognise(HEADS[kind], len(HEADS[kind])).kind == kind


@given(head=st.binary(max_size=64))
def test_any_bytes_have_a_kind(head: bytes) -> None:
    """Any first bytes have a kind; only boxes make an MP4."""
    kind = recognise(head, len(head)).kind

    assert kind in HEADS
    assert kind != "mp4" or head[4:8].isalpha()


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    wide=st.booleans(),
    missing=st.integers(0, 7),
)
@examples(50)
def test_boxes_are_found_wherever_they_end(sizes: list[int], wide: bool, missing: int) -> None:
    """Boxes with short and long sizes lie end to end; one cut short ends after the file."""
    content = b""
    for size in sizes:
        header = struct.pack(">I4sQ", 1, b"mdat", size + 16) if wide else None
        content += (header or struct.pack(">I4s", size + 8, b"mdat")) + bytes(size)
    missing = min(missing, sizes[-1])
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        Path(file.name).write_bytes(content[: len(content) - missing])
        boxes = top_boxes(LocalSource(file.name))

    assert [box.stop - box.start for box in boxes] == [size + 8 * (1 + wide) for size in sizes]
    assert boxes[-1].stop == len(content)


@given(cut=st.integers(0, CLIP.stat().st_size - 1))
@examples(60)
def test_no_prefix_of_a_recording_passes(cut: int) -> None:
    """A truncated recording with its index at the end is always a problem."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.mp4").write_bytes(CLIP.read_bytes()[:cut])
        found = check_file(as_location(folder), "a.mp4", want="mp4")

    assert found.problem is not None
    assert found.problem.kind in ("empty", "zeros", "unknown", "truncated", "no_index")
    assert found.problem.cure


def test_the_place_of_the_index_is_found() -> None:
    """Recorders put the index at the end, tools for the web at the front."""
    root = FIXTURES / "av1_multifile" / "videos"
    places = {
        camera: check_file(as_location(root), f"{camera}/chunk-000/file-000.mp4", want="mp4")
        for camera in ("observation.images.top", "observation.images.wrist")
    }

    assert [place.index_place for place in places.values()] == ["front", "back"]


def test_the_size_behind_a_pointer_is_reported(tmp_path: Path) -> None:
    """Users see how much `git lfs pull` will fetch."""
    (tmp_path / "a.mp4").write_bytes(LFS_POINTER)
    problem = check_file(as_location(tmp_path), "a.mp4", want="mp4").problem

    assert problem is not None
    assert "The real file has 22.4 MiB" in problem.what
    assert "git lfs pull" in problem.cure
