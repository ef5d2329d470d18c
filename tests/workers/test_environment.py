# SPDX-License-Identifier: Apache-2.0
"""What workers inherit, and what they get besides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.loader.streams import blind_stream, open_loader


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (None, ["glibc.malloc.hugetlb=1"]),
        ("glibc.malloc.arena_max=2", ["glibc.malloc.arena_max=2", "glibc.malloc.hugetlb=1"]),
        ("glibc.malloc.hugetlb=0", ["glibc.malloc.hugetlb=0"]),
    ],
)
def test_workers_ask_for_large_pages(
    monkeypatch: pytest.MonkeyPatch, own: str | None, wanted: list[str]
) -> None:
    """The user's own settings stay, that of large pages too."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    loader = open_loader(blind_stream(), 4, num_workers=1)
    batches = iter(loader)
    next(batches)
    (pid,) = loader._open().pool.pids
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    loader.close()
    # While it starts, the C library may copy the settings, and end each with a zero byte.
    found = set(re.findall(rb"glibc\.malloc\.\w+=\d", environment))

    assert sorted(setting.decode() for setting in found) == wanted
    assert b"OMP_NUM_THREADS=1" in environment.split(b"\0")
