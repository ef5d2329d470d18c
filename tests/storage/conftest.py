# SPDX-License-Identifier: Apache-2.0
"""Tests of storage talk to servers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.ports import forget_servers


@pytest.fixture(autouse=True)
def strangers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that nobody knows yet."""
    forget_servers(Path(tmp_path_factory.mktemp("home")), monkeypatch)
