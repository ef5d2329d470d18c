# SPDX-License-Identifier: Apache-2.0
"""A cluster does not hammer a server that limits its requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.meta import LeRobotDatasetMetadata
from robostream.testing import Exchange, Script, serve_files, start_proxy
from tests.remote.many_ranks import run_ranks

pytestmark = pytest.mark.long

NODES, RANKS = 8, 8
REQUESTS_PER_S = 100


def answered(journal: list[Exchange], method: str) -> int:
    return sum(exchange.status < 400 and exchange.method == method for exchange in journal)


def refused(journal: list[Exchange]) -> int:
    return sum(exchange.fault == "limit" for exchange in journal)


def test_64_ranks_share_a_limit_of_requests(dataset: Path, tmp_path: Path) -> None:
    """All finish, no machine fetches a byte twice, and throttling decreases.

    The least that is needed is what the same ranks ask for one after the other, without a limit:
    requests for bytes (GET), and looks at a file's size and version (HEAD), counted apart.
    """
    with serve_files(dataset) as server, start_proxy(server) as proxy:
        alone = run_ranks(
            proxy.url, _made(tmp_path / "alone"), nodes=NODES, ranks=RANKS, at_once=False
        )
        least = {method: answered(proxy.journal(), method) for method in ("GET", "HEAD")}
        begun = len(proxy.journal())
        proxy.play(Script(requests_per_s=REQUESTS_PER_S))
        ranks = run_ranks(
            proxy.url, _made(tmp_path / "at-once"), nodes=NODES, ranks=RANKS, at_once=True
        )
        journal = proxy.journal(begun)

    total = LeRobotDatasetMetadata("lab/cups", root=dataset).total_frames
    assert all(isinstance(rank, dict) for rank in ranks), ranks
    assert {index for rank in ranks for index in rank["indices"]} == set(range(total))
    assert [rank["values"] for rank in ranks] == [rank["values"] for rank in alone]
    found = {method: answered(journal, method) for method in least}
    print(f"least {least}, answered {found}, refused {refused(journal)}")
    assert all(found[method] <= 1.2 * least[method] for method in least)
    # Whether a handful comes early or late is the machine's doing.
    few = 0.05 * len(journal)
    if refused(journal) > few:
        assert sum(rank["stats"]["throttled_s"] for rank in ranks) > 0
        half = (journal[0].at_s + journal[-1].at_s) / 2
        early = [exchange for exchange in journal if exchange.at_s <= half]
        assert refused(journal) - refused(early) <= max(refused(early), few)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
