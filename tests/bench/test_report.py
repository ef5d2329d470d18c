# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench report`: the table, the CSV, failures, and the page in a browser."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from robostream.bench.report import group_rows, report_html
from robostream.bench.results import save_run
from robostream.cli.main import main
from tests.bench.chromium import look_at
from tests.bench.runs import imagined_run

REPO = Path(__file__).parents[2]
SCRIPT = REPO / "benchmarks" / "streaming" / "summarize_results.py"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Twelve settings, two runs of each, in folders of nodes."""
    for node in ("node-0", "node-1"):
        for source in ("hub", "bucket", "warmed_bucket"):
            for mode in ("single", "sarm"):
                for workers in (2, 16):
                    figures = imagined_run(source, mode, workers, rate=80.0 * workers)
                    figures["node"] = {**figures["node"], "hostname": node}
                    save_run(tmp_path / node, f"{source}_{mode}_w{workers}", figures)
    return tmp_path


@pytest.mark.long
def test_the_summary_has_a_row_for_each_setting(results: Path) -> None:
    """The script prints LeRobot's columns, writes summary.csv and exits with 0."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(results)], capture_output=True, text=True, check=False
    )
    rows = list(csv.DictReader((results / "summary.csv").read_text().splitlines()))

    assert done.returncode == 0, done.stderr
    assert list(rows[0])[:6] == ["source", "mode", "decode", "workers", "bs", "frames/s/node"]
    assert len(rows) == 12
    assert {(row["runs"], row["nodes"]) for row in rows} == {("2", "2")}
    assert [float(row["frames/s/node"]) for row in rows] == [
        80.0 * int(row["workers"]) for row in rows
    ]
    assert done.stdout.count("warmed_bucket") == 8  # in the table, and below it
    assert done.stdout.count(": limited by decoding: workers were busy 95%") == 12


@pytest.mark.long
def test_failures_are_listed_and_other_runs_summarized(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of a failed job and a truncated result give exit code 1; other JSON does not."""
    (results / "hub_single_cuda.failed").write_text("no GPU <here>\nmore\n")
    (results / "torn.json").write_text('{"frames_per_s_node": 3')
    (results / "other.json").write_text('{"what": "not a result"}')

    assert main(["bench", "report", str(results)]) == 1
    said = capsys.readouterr().err
    assert "FAILED hub_single_cuda.failed: no GPU <here>" in said
    assert "torn.json" in said
    assert "other.json" not in said
    page = (results / "report.html").read_text()
    assert "no GPU &lt;here&gt;" in page
    assert len((results / "summary.csv").read_text().splitlines()) == 13


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    """Without results there is no summary."""
    assert main(["bench", "report", str(tmp_path)]) == 1
    assert main(["bench", "report", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "summary.csv").exists()


def test_a_row_has_the_median_of_its_runs() -> None:
    """It also has all runs, and the one closest to the median."""
    (row,) = group_rows([imagined_run(rate=rate) for rate in (90.0, 100.0, 400.0)])

    assert row["samples_per_s"] == 100.0
    assert [run["samples_per_s"] for run in row["runs"]] == [90.0, 100.0, 400.0]
    assert row["over_floor"] == pytest.approx(0.3)
    assert row["typical"]["samples_per_s"] == 100.0


def test_the_page_holds_all_it_needs() -> None:
    """It has no links and no scripts, and labels are escaped."""
    page = report_html(group_rows([imagined_run("<b>")]), {}, title="A & B")

    assert re.findall(r"(?:https?:)?//\w|<script|<link|<img|@import|url\((?!#)", page) == []
    assert "&lt;b&gt;" in page
    assert "<title>A &amp; B</title>" in page


def test_without_matplotlib_the_extra_is_named_and_the_rest_written(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table and the CSV need no charts."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    assert main(["bench", "report", str(results)]) == 0
    seen = capsys.readouterr()
    assert "pip install 'robostream[plot]'" in seen.err
    assert "warmed_bucket" in seen.out
    assert (results / "summary.csv").exists()
    assert not (results / "report.html").exists()


def test_charts_of_one_page_share_no_identifier() -> None:
    """A clip path of a hidden chart would hide parts of a visible one."""
    page = report_html(group_rows([imagined_run(mode=m) for m in ("single", "sarm")]), {}, title="")
    defined = re.findall(r'<clipPath id="([^"]*)"', page)

    assert len(defined) > 4
    assert len(defined) == len(set(defined))


@pytest.mark.usefixtures("browser")
@pytest.mark.long
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_draws_the_page(results: Path, width: int) -> None:
    """On a desktop and on a phone, charts are complete, text is readable, nothing overflows.

    The page fetches nothing.
    """
    assert main(["bench", "report", str(results)]) == 0
    seen = look_at(results / "report.html", width=width)
    visible: Any = [right - left for left, right, height in seen["bars"] if height > 8]

    assert seen["width"] == width
    assert seen["scrollWidth"] == width
    assert seen["beyond"] == []
    assert seen["smallestText"] >= 13
    assert len(visible) == 2 * 12  # throughput and shuffle
    assert min(visible) > 5
    assert seen["marks"] == 2 * 12
    assert seen["parts"] == 5 * 12
    assert len(seen["dots"]) == 3 * 12
    assert len(seen["curves"]) == 2 * 12  # start-up and memory
    assert all(right - left > 50 and height > 20 for left, right, height in seen["curves"])
    assert len(seen["headings"]) == 8
    assert seen["fetched"] == []
