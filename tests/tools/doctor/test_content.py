# SPDX-License-Identifier: Apache-2.0
"""Files are recognised by their bytes, not by their names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import FileOpener, as_location
from robostream.tools.doctor.content import FileProblem, recognise
from robostream.tools.doctor.files import ListedFile, read_file
from tests.fixture_datasets import FIXTURES
from tests.parameters import examples

ROOT = FIXTURES / "h264_bframes"
CAMERA = "observation.images.top"
CLIP = ROOT / f"videos/{CAMERA}/chunk-000/file-000.mp4"
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


def read(content: bytes) -> FileProblem | None:
    """What is wrong with a video of these bytes."""
    meta = LeRobotDatasetMetadata("a", root=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.mp4").write_bytes(content)
        listed = ListedFile(meta, CAMERA, "a.mp4", np.array([0]))
        found = read_file(FileOpener(as_location(folder)), listed)
    return getattr(found, "problem", None)


@pytest.mark.parametrize("kind", HEADS)
def test_a_file_is_recognised_by_its_first_bytes(kind: str) -> None:
    """Videos, tables, pointers and messages saved as videos are distinguished."""
    assert recognise(HEADS[kind], len(HEADS[kind]))[0] == kind


@given(head=st.binary(max_size=64))
def test_any_bytes_have_a_kind(head: bytes) -> None:
    """Any first bytes have a kind; only boxes make an MP4."""
    kind, words = recognise(head, len(head))

    assert kind in HEADS
    assert words
    assert kind != "mp4" or head[4:8].isalpha()


@given(cut=st.integers(0, CLIP.stat().st_size - 1))
@examples(60)
def test_no_prefix_of_a_recording_passes(cut: int) -> None:
    """A truncated recording with its index at the end is always a problem, with a cure."""
    problem = read(CLIP.read_bytes()[:cut])

    assert problem is not None
    assert problem.kind in ("empty", "zeros", "unknown", "damaged")
    assert problem.cure


@pytest.mark.parametrize(
    ("kind", "cure"), [("lfs_pointer", "git lfs pull"), ("web_page", "hf auth login")]
)
def test_the_cure_depends_on_the_content(kind: str, cure: str) -> None:
    """A pointer is pulled, a server's message is read."""
    problem = read(HEADS[kind])

    assert problem is not None
    assert problem.kind == kind
    assert cure in problem.cure


def test_the_size_behind_a_pointer_is_reported() -> None:
    """Users see how much `git lfs pull` will fetch."""
    problem = read(LFS_POINTER)

    assert problem is not None
    assert "The real file has 22.4 MiB" in problem.what
