# SPDX-License-Identifier: Apache-2.0
"""The same epoch from everywhere, receipt for receipt and pixel for pixel."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.testing import Script, mixed_faults, start_proxy
from tests.parameters import long_except
from tests.remote.conftest import Serve, stream_epochs
from tests.remote.program import Report
from tests.remote.stores import STORES


@pytest.mark.parametrize("store", long_except(STORES, "hub", "s3"))
def test_every_place_delivers_the_same_epoch(
    served: Serve, local: Report, tmp_path: Path, store: str
) -> None:
    """Order, rows and images do not depend on the store."""
    found = served(store)
    report = stream_epochs(tmp_path / "home", found.stream, found.environment)

    assert report.error == "", report.words
    assert report.epochs[0] == local.epochs[0]


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
def test_a_tenth_of_all_requests_may_fail(
    served: Serve, local: Report, tmp_path: Path, store: str
) -> None:
    """No frame is lost, repeated or different; failures are counted."""
    found = served(store)
    # A little more for reads, because fewer kinds of faults concern other requests.
    with start_proxy(found.url, Script(mixed_faults(0.25), seed=7)) as proxy:
        shaky = found.behind(proxy.url)
        report = stream_epochs(tmp_path / "home", shaky.stream, shaky.environment)
        counts = proxy.counts()

    assert report.error == "", report.words
    assert report.epochs[0] == local.epochs[0]
    assert sum(counts["faults"].values()) >= 0.1 * counts["requests"] > 0
    assert report.stats["retries"] > 0


@pytest.mark.parametrize("store", long_except(STORES, "bucket"))
def test_a_second_epoch_asks_for_nothing(
    served: Serve, local: Report, tmp_path: Path, store: str
) -> None:
    """The first epoch fills the cache: no bytes of rows or images are fetched again."""
    found = served(store)
    cached = {"cache_dir": str(tmp_path / "cache"), "frame_cache_bytes": 0}
    with start_proxy(found.url) as proxy:
        near = found.behind(proxy.url)
        for epochs in (1, 2):
            begun = len(proxy.journal())
            report = stream_epochs(
                tmp_path / "home", near.stream | cached, near.environment, epochs=epochs
            )
            assert report.error == "", report.words
        fetched = [e for e in proxy.journal(begun) if "/data/" in e.path or "/videos/" in e.path]

    assert report.epochs == local.epochs
    assert sum(exchange.sent_bytes for exchange in fetched) == 0
