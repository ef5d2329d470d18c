# SPDX-License-Identifier: Apache-2.0
"""Every measured figure of README and site stands in a JSON that a command made.

Tables and charts between marks are made from the JSON files (tests/bench/test_docs.py compares
them). The figures of the text and of other tables are listed here, each with its place in those
files. All pages are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from robostream.bench import peers
from scripts import compare_mixture

REPO = Path(__file__).parents[2]
PAGES = ["README.md", *(str(p.relative_to(REPO)) for p in sorted((REPO / "docs").rglob("*.md")))]
RESULTS = REPO / "benchmarks" / "results"
NUMBER = r"\d[\d.,]*"
UNITS = (
    r"(?:s|ms|µs|us|ns|[KMG]i?B(?:/s)?|%|Mbit/s|images/s|samples/s|times|minutes|dB"
    r"|frames of \d+x\d+|bytes per byte|requests per episode)"
)
FIGURE = re.compile(rf"(?<![\w.,/-]){NUMBER}(?:\s(?:to|and|/)\s{NUMBER})*\s?{UNITS}(?![\w/])")
# Cells of a table that hold numbers alone.
CELL = re.compile(r"-?[\d.,; ]*\d[\d.,; ]*")
FRAME_BYTES = 256 * 256 * 3 / 2  # as 4:2:0
# What somebody chose, not measured: limits, budgets, lengths of runs, numbers of a specification.
CHOSEN: dict[str, set[str]] = {
    "docs/benchmarks.md": {"10 minutes", "3 to 5 s", "2 GiB", "512 MiB", "2 s", "4 s"},
    "docs/cache.md": {
        *("5 %", "5 GiB", "256 GiB", "32 MiB", "1.25 times", "2 MiB", "512 MiB", "64 KiB", "30 s"),
    },
    "docs/design.md": {"50 ms", "4 times"},
    "docs/format.md": {
        "1 MB",
        "100, 200",
        "0.0001 s",
        "0 s",
        "0",
        "1000",
        "16 MiB",
        "1 MiB",
        "20 ms",
    },
    "docs/gpu.md": {"420 MB", "6 GiB", "600 MiB"},
    "docs/inspect.md": {"2 GiB"},
    "docs/loading.md": {"640 MiB", "48 MiB", "3 GiB", "5 %", "30 %", "85 %"},
    "docs/memory.md": {"150 MB"},
    "docs/mixtures.md": {"3 times"},
    "docs/order.md": {"1 %", "50 %", "99 %"},
    "docs/slurm.md": {"5 minutes"},
    "docs/training.md": {"0", "75", "1, 2"},  # exit codes
    "docs/storage.md": {
        *("8 times", "30 s", "1 KiB/s", "60 s", "16 MiB", "20 ms", "200 Mbit/s", "4 MiB", "2 GiB"),
        *("4 times", "100 KB", "403, 404"),
    },
}


@cache
def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def decoded(videos: str, read_as: str) -> Any:
    rows = read("suite")["decode"]["results"]
    return next(r for r in rows if videos in r["videos"] and r["read"] == f"at random, {read_as}")


def in_order(videos: str) -> Any:
    rows = read("suite")["decode"]["results"]
    return next(r for r in rows if videos in r["videos"] and r["read"] == "in order")


def cost(kind: str) -> float:
    return float(read("suite")["decode"]["costs_us"][0][kind])


def touching(place: int) -> float:
    return float(read("loader-2-cores")["machine"]["touch_gb_per_s"][place])


def upload(way: str, height: int, steps: int, *, resize: bool = False) -> Any:
    """The row of 16 workers."""
    return next(
        row
        for row in read("gpu")["uploads"]
        if (row["way"], row["size"][0], len(row["window_s"])) == (way, height, steps)
        and row["workers"] == 16
        and bool(row["resize"]) == resize
    )


def gain(height: int, steps: int) -> float:
    """How much faster 4:2:0 is than RGB."""
    ours, theirs = upload("yuv", height, steps), upload("rgb", height, steps)
    return float(ours["images_per_s"] / theirs["images_per_s"])


def resized(way: str, steps: int) -> float:
    """How much faster 640x480 comes as 224x224."""
    small, large = upload(way, 480, steps, resize=True), upload(way, 480, steps)
    return float(small["images_per_s"] / large["images_per_s"])


def mixing(pool_size: int) -> float:
    """The diversity of robostream's order with 48 lanes, in percent."""
    rows = read("shuffle-48-lanes")
    return 100 * float(
        next(
            row["diversity"]
            for row in rows
            if (row["method"], row["pool_size"]) == ("robostream", pool_size)
        )
    )


def fetched(epoch: int) -> Any:
    return read("suite")["remote"]["fast"][epoch]


def first_batches() -> list[float]:
    return sorted(row["first_batch_s"] for row in read("gpu")["nvdec"] if not row["streams"])


def shown(value: float, text: str) -> str:
    """A value with as many decimals as a text."""
    decimals = len(text.rpartition(".")[2]) if "." in text else 0
    return f"{value:,.{decimals}f}"


# By page, the values behind each figure of the text, in the order of its numbers.
BEHIND: dict[str, dict[str, Callable[[], list[float]]]] = {
    "docs/benchmarks.md": {
        "0.46": lambda: [decoded("av1", "nothing kept")["over_floor"]],
        "0.02": lambda: [decoded("h264", "nothing kept")["over_floor"]],
        "1.5; 41": lambda: [
            decoded(videos, "nothing kept")["amplification"] for videos in ("av1", "h264")
        ],
        "0.51": lambda: [decoded("av1", "room for all")["over_floor"]],
        "0.57": lambda: [decoded("h264", "room for all")["over_floor"]],
        "1.25; 1.54": lambda: [
            decoded(videos, "room for all")["amplification"] for videos in ("av1", "h264")
        ],
        "11": lambda: [decoded("av1", "all kept")["over_floor"]],
        "8.6": lambda: [decoded("h264", "all kept")["over_floor"]],
        "0": lambda: [decoded("av1", "all kept")["amplification"]],
        "0.63": lambda: [in_order("av1")["over_floor"]],
        "0.73": lambda: [in_order("h264")["over_floor"]],
        "1.03; 1.01": lambda: [in_order(videos)["amplification"] for videos in ("av1", "h264")],
        "19 us": lambda: [cost("convert")],
        "85 us": lambda: [cost("convert to float32")],
        "8 us": lambda: [cost("keep")],
        "0.46 GB/s": lambda: [touching(0)],
        "10 GB/s": lambda: [touching(1)],
        "202 us": lambda: [FRAME_BYTES / 1e3 * (1 / touching(0) - 1 / touching(1))],
        "6 to 9 s": lambda: [first_batches()[0], first_batches()[-1]],
        "70,272 to 89,472 frames of 256x256": lambda: upload("yuv", 256, 8)["rates"],
    },
    "docs/decoding.md": {"19 us": lambda: [cost("convert")]},
    "docs/format.md": {
        "163 MB": lambda: [read("suite")["meta"]["rows"][0]["kept_bytes"] / 1000],
    },
    "docs/gpu.md": {
        "4.1 times": lambda: [gain(256, 8)],
        "2.8 times": lambda: [gain(480, 8)],
        "1.25 and 1.6 times": lambda: [gain(256, 1), gain(480, 1)],
        "3.4 times": lambda: [resized("rgb", 8)],
        "1.4 times": lambda: [resized("rgb", 1)],
        "1.3 times": lambda: [resized("yuv", 8)],
        "1.5 %": lambda: [100 * read("training")["data_wait_share"]],
    },
    "docs/mixtures.md": {
        "2.4 times": lambda: [
            row["rank"][2]
            for row in read("mixture-shares")
            if (row["datasets"], row["lanes"], row["pool"]) == (20, 240, 64)
        ],
    },
    "docs/order.md": {
        "87 %": lambda: [mixing(64)],
        "97 %": lambda: [mixing(256)],
        "8,000 MB": lambda: [read("suite")["plan"]["results"][1]["stored_order_mb"]],
    },
    "docs/storage.md": {
        "1.00 bytes per byte": lambda: [fetched(0)["fetched_over_needed"]],
        "1.13 requests per episode": lambda: [fetched(0)["requests_per_episode_and_camera"]],
    },
    "docs/training.md": {
        "0.336": lambda: [read("learning")["policy"]],
        "0.786": lambda: [read("learning")["mean"]],
        "0.737": lambda: [read("learning")["still"]],
        "773 samples/s": lambda: [read("training")["samples_per_s"]],
        "2,319 images/s": lambda: [read("training")["images_per_s"]],
        "83 ms": lambda: [1000 * read("training")["step_s"]],
        "1.5 %": lambda: [100 * read("training")["data_wait_share"]],
    },
}


def shuffle_rows() -> str:
    """The rows of docs/order.md, from the JSON files of `robostream shuffle`."""
    wanted = [
        *((read("shuffle-48-lanes"), "robostream", "48", pool) for pool in (16, 64, 256)),
        *((read("shuffle-240-lanes"), "robostream", "240", pool) for pool in (16, 64, 256)),
        *(
            (read("shuffle-48-lanes"), method, "", pool)
            for method in ("reference pool", "shuffle buffer")
            for pool in (16, 64, 256)
        ),
    ]
    lines = []
    for rows, method, lanes, pool in wanted:
        row = next(r for r in rows if (r["method"], r["pool_size"]) == (method, pool))
        lines.append(f"| {method} | {lanes} | {pool} | {_mixing_cells(row)}".replace("|  |", "| |"))
    uniform = next(r for r in read("shuffle-48-lanes") if r["method"] == "uniform")
    return "\n".join([*lines, f"| uniform permutation | | all | {_mixing_cells(uniform)}"]) + "\n"


def _mixing_cells(row: dict[str, float]) -> str:
    distinct, share = f"{row['distinct']:.1f}", f"{row['diversity']:.2f}"
    correlation = abs(round(row["correlation"], 2))
    return f"{distinct} | {share} | {row['gap']:,.0f} | {correlation:.2f} |"


def plan_rows() -> str:
    """The rows of docs/order.md, from `robostream bench plan`."""
    lines = []
    for power, row in zip(("10⁶", "10⁹"), read("suite")["plan"]["results"], strict=True):
        start = f"{row['start_s']:.3f}" if row["start_s"] < 0.1 else f"{row['start_s']:.2f}"
        seeks = " / ".join(f"{row[f'seek_ms {share} %']:.1f}" for share in (1, 50, 99))
        cells = [
            *(power, f"{row['episodes']:,}", f"{start} s", f"{row['peak_rss_mb']:.0f} MB"),
            *(f"{row[name]:.0f} ns" for name in ("ns_per_position", "ns_per_own_position_of_8")),
            *(f"{row['state_ms']:.0f} ms", f"{seeks} ms"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def share_rows() -> str:
    """The rows of docs/mixtures.md, from `compare_mixture.py --shares`."""
    return "\n".join(map(compare_mixture.format_shares, read("mixture-shares"))) + "\n"


# By page, the tables without marks: functions that make their rows from the JSON files.
TABLES: dict[str, list[Callable[[], str]]] = {
    "docs/mixtures.md": [share_rows],
    "docs/order.md": [shuffle_rows, plan_rows],
}


def figures(page: str, text: str) -> list[str]:
    """The figures of a page outside its generated tables and its code."""
    for make in TABLES.get(page, ()):
        text = text.replace(make(), "")
    text = re.sub(r"<!-- (\S[^>]*): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    prose = [re.sub(r"\s+", " ", found) for found in FIGURE.findall(text)]
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    return prose + [cell.strip() for row in rows for cell in row if CELL.fullmatch(cell.strip())]


def unknown(page: str, text: str) -> list[str]:
    """The figures of a page that no JSON has."""
    found = []
    for figure in figures(page, text):
        if figure in CHOSEN.get(page, ()):
            continue
        values = BEHIND.get(page, {}).get(figure, list)()
        numbers = re.findall(NUMBER, figure.split(" frames of")[0])
        numbers = [number.rstrip(",.") for number in numbers]
        if [shown(value, n) for value, n in zip(values, numbers, strict=False)] != numbers:
            found.append(figure)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_stands_in_a_json(page: str) -> None:
    """No page has a measured figure of its own."""
    assert unknown(page, (REPO / page).read_text()) == []


@pytest.mark.parametrize("page", sorted({*BEHIND, *CHOSEN, *TABLES}))
def test_every_listed_figure_is_on_its_page(page: str) -> None:
    """The lists above hold no figure and no table that their page has lost."""
    text = (REPO / page).read_text()
    listed = CHOSEN.get(page, set()) | set(BEHIND.get(page, ()))

    assert listed - set(figures(page, text)) == set()
    assert [make() for make in TABLES.get(page, ()) if make() not in text] == []


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", "It delivers 1,413 samples/s."),
        ("README.md", "It is 4.9 times as fast."),
        ("docs/benchmarks.md", "One frame takes 18 us to convert."),
        ("docs/benchmarks.md", "| in order | 0.64 |"),
        ("docs/gpu.md", "Windows came 4.2 times as fast."),
        ("docs/training.md", "The loop waited for 2 % of the time."),
        ("docs/mixtures.md", "A mixture takes 1.1 times the CPU time."),
        ("docs/recipes/jax.md", "| on one core | 412 |"),
        ("docs/order.md", "| robostream | 54.6 |"),
    ],
)
def test_a_figure_that_no_json_has_is_found(page: str, sentence: str) -> None:
    """Another value, or a figure that nobody measured."""
    assert len(unknown(page, f"{(REPO / page).read_text()}\n\n{sentence}\n")) == 1


def test_new_measurements_make_old_figures_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refreshed JSON fails the test until the text follows."""
    training = read("training") | {"samples_per_s": 801.2}
    known = read
    monkeypatch.setattr(
        "tests.docs.test_figures.read",
        lambda name: training if name == "training" else known(name),
    )

    assert unknown("docs/training.md", "It trained on 773 samples/s.") == ["773 samples/s"]


def test_the_chart_has_every_case_and_every_failure() -> None:
    """Three bars a case with their numbers; a loader that failed is drawn as failed."""
    found = read("peers")
    chart = peers.draw_chart(found).decode()
    cases = {(row["data"], row["mode"]) for row in found["results"]}
    ours = ("robostream", "LeRobot, streaming")
    drawn = [row for row in found["results"] if row["contestant"] in ours]
    failed = [row for row in drawn if "failed" in row]

    assert all(f">{', '.join(data.split(', ')[:3])}<" in chart for data, _ in cases)
    assert chart.count(">LeRobot map-style<") == len(cases)
    assert chart.count(">failed (") == len(failed) > 0
    assert chart.count('id="bar-') == 3 * len(cases) - len(failed)
    assert all(f">{row['samples_per_s']:,.0f}<" in chart for row in drawn if "failed" not in row)


def test_other_measurements_draw_another_chart() -> None:
    """A bar is as long as its rate, and a failure has no bar."""
    found = json.loads(json.dumps(read("peers")))
    row = next(row for row in found["results"] if row["contestant"] == "robostream")
    row["failed"] = "OSError: no space left"
    chart, known = (peers.draw_chart(figures).decode() for figures in (found, read("peers")))

    assert ">failed (OSError)<" in chart
    assert chart.count('id="bar-') == known.count('id="bar-') - 1
