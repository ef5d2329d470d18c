# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench versions` and of its v2.1 copies, on small datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from robostream import LeRobotDataset
from robostream.bench.versions import copy_as_v21, measure
from robostream.testing import Script
from tests.fixture_datasets import FIXTURES

ROOT = FIXTURES / "av1_multifile"


def test_a_v21_copy_has_the_same_items(tmp_path: Path) -> None:
    """All values of all frames are equal, pixels too, and so are the statistics."""
    copy_as_v21(ROOT, tmp_path / "copy")
    new, old = (LeRobotDataset("some/name", root=root) for root in (ROOT, tmp_path / "copy"))
    assert old.meta.info.codebase_version == "v2.1"
    assert len(old) == len(new)
    for number in range(len(new)):
        wanted, found = new[number], old[number]
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            same = torch.equal(found[key], value) if torch.is_tensor(value) else found[key] == value
            assert same, (number, key)
    assert old.meta.stats is not None
    assert new.meta.stats is not None
    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(
            old.meta.stats["action"][name], new.meta.stats["action"][name], rtol=1e-6
        )


@pytest.mark.long
def test_both_versions_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both deliver an epoch; a file of v2.1 takes one or two requests."""
    copy_as_v21(ROOT, tmp_path / "copy")
    figures = measure(tmp_path / "copy", ROOT, Script(latency_s=0.001, bytes_per_s=25e6), rounds=1)
    rows = {(row["version"], row["consumer"] == "full speed"): row for row in figures["rows"]}

    assert len(rows) == 4
    assert 1 <= rows["v2.1", True]["requests_per_file"] <= 2
    # info.json, the episodes and the tasks, with the size of each.
    assert rows["v2.1", True]["opening_requests"] == 6
    assert figures["v21_over_v30"]["first_batch"] > 0
    assert "v2.1 over v3.0: first batch" in capsys.readouterr().out
