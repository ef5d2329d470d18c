# SPDX-License-Identifier: Apache-2.0
"""Datasets on the Hub: one process of a node downloads, the others wait."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.examples.runs import DATASET, flags, run_ranks
from tests.servers.hub import Hub

pytestmark = pytest.mark.long


def test_two_processes_of_a_node_download_once(hub: Hub, tmp_path: Path) -> None:
    """Every file of the dataset is sent a single time."""
    hub.add_repo("lab/cups").commit(DATASET, tags=["v3.0"])
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    words = flags(
        tmp_path / "out", repo_id="lab/cups", batch_size=4, steps=1, dummy=True, num_workers=0
    )
    del words[words.index("--root") : words.index("--root") + 2]
    run_ranks([*words, "--map_style"], 2, env=home)

    sent = Counter(hub.downloads("lab/cups"))
    assert {path.split("/")[0] for path in sent} == {"data", "meta", "videos"}
    assert set(sent.values()) == {1}
