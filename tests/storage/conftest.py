# SPDX-License-Identifier: Apache-2.0
"""Tests of storage talk to servers of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.ports import forget_servers


@pytest.fixture(autouse=True)
def strangers(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Servers that nobody knows yet, and nobody after the test."""
    home = tmp_path_factory.mktemp("home")
    forget_servers(home, monkeypatch)
    yield
    forget_servers(home, monkeypatch)
