# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench remote` and `bench versions`, and of the v2.1 copies, on a small dataset."""

from __future__ import annotations

from pathlib import Path

import av
import pyarrow.parquet as pq
import pytest
import torch

from robostream import LeRobotDataset
from robostream.bench.remote import (
    copy_as_v21,
    count_cuts,
    measure,
    measure_need,
    measure_versions,
    sum_traffic,
)
from robostream.plan import EpochPlan
from robostream.testing import Exchange, Script
from tests.fixture_datasets import FIXTURES

ROOT = FIXTURES / "av1_multifile"


def test_the_need_is_what_the_files_hold() -> None:
    """The bytes of all packets and row groups, without headers and sample tables."""
    need = measure_need(ROOT)
    packets = 0
    for path in ROOT.glob("videos/**/*.mp4"):
        with av.open(str(path)) as container:
            packets += sum(packet.size for packet in container.demux(video=0))
    files = list(ROOT.glob("data/**/*.parquet"))

    assert need["video_bytes"] == packets
    assert 0 < need["row_bytes"] < sum(path.stat().st_size for path in files)
    assert need["frames"] == sum(pq.read_metadata(path).num_rows for path in files)


@pytest.mark.parametrize(("lanes", "cuts"), [(1, 0), (2, 1), (3, 1), (5, 4), (30, 26)])
def test_cuts_are_positions_inside_episodes(lanes: int, cuts: int) -> None:
    """Episodes begin at 0, 10, 17 and 26; a lane that begins elsewhere cuts one."""
    options = {"seed": 1, "epoch": 0, "lanes": lanes, "pool_size": 2}
    in_order, shuffled = (EpochPlan([10, 7, 9, 4], **options, shuffle=s) for s in (False, True))

    assert count_cuts(in_order) == cuts
    # A shuffled order also enters lanes in their middle.
    assert count_cuts(shuffled) <= 2 * lanes


def test_traffic_is_counted_by_folder() -> None:
    """Videos, rows and the rest; throttled requests count."""
    journal = [
        Exchange(0.0, "GET", "/videos/top/file.mp4", 0, 10, 206, 10, ""),
        Exchange(0.1, "GET", "/videos/top/file.mp4", 10, 20, 429, 5, "limit"),
        Exchange(0.2, "GET", "/data/file.parquet", 0, 3, 206, 3, ""),
        Exchange(0.3, "HEAD", "/meta/info.json", None, None, 200, 0, ""),
        Exchange(0.4, "GET", "/meta/info.json", None, None, 200, 70, ""),
    ]
    traffic = sum_traffic(journal)

    assert traffic == {
        "video_requests": 2,
        "row_requests": 1,
        "meta_requests": 2,
        "fetched_bytes": 18,
        "meta_bytes": 70,
    }


@pytest.mark.long
def test_three_streams_of_two_epochs_are_measured() -> None:
    """All streams deliver all frames; the figures follow from the proxy's journal."""
    figures, text = measure(ROOT, Script(latency_s=0.001, bytes_per_s=25e6))
    epochs = figures["fast"] + figures["paced"] + figures["paced_whole_episodes"]

    assert len(epochs) == 6
    assert [epoch["lanes"] for epoch in epochs] == [12] * 4 + [16] * 2
    for epoch in epochs:
        assert epoch["first_batch_s"] > 0
        assert epoch["samples_per_s"] > 0
        assert 0 <= epoch["wait_share"] <= 1
    first = epochs[0]
    need = figures["need"]
    assert first["fetched_bytes"] >= need["video_bytes"] + need["row_bytes"]
    assert first["fetched_over_needed"] >= 1
    assert figures["paced"][1]["stats"]["samples"] == 2 * need["frames"]
    assert figures["link_over_need"] >= 2
    assert "wait: share of the time" in text


def test_a_v21_copy_has_the_same_items(tmp_path: Path) -> None:
    """All values of all frames are equal, pixels too."""
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


@pytest.mark.long
def test_both_versions_are_measured(tmp_path: Path) -> None:
    """Both deliver an epoch; a file of v2.1 takes one or two requests."""
    copy_as_v21(ROOT, tmp_path / "copy")
    figures, text = measure_versions(
        tmp_path / "copy", ROOT, Script(latency_s=0.001, bytes_per_s=25e6), rounds=1
    )
    rows = {(row["version"], row["consumer"] == "full speed"): row for row in figures["rows"]}

    assert len(rows) == 4
    assert 1 <= rows["v2.1", True]["requests_per_file"] <= 2
    # info.json, the episodes and the tasks, with the size of each.
    assert rows["v2.1", True]["opening_requests"] == 6
    assert figures["v21_over_v30"]["first_batch"] > 0
    assert "v2.1 over v3.0: first batch" in text
