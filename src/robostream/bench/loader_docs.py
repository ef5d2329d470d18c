# SPDX-License-Identifier: Apache-2.0
"""The tables of `bench loader` in docs/benchmarks.md: of each machine whose figures are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robostream.bench.results import Figures, read_figures, write_json
from robostream.bench.table import markdown_table, refresh_block

MARK = "loader"
DOCS = Path("docs/benchmarks.md")
_RESULTS = Path("benchmarks/results")
_HEADER = (
    "case",
    "workers",
    "measured",
    "floor, images/s",
    "images/s",
    "over the floor",
    "goal",
    "first batch, s",
    "lowest 2 s over the median",
    "decoded per delivered",
    "memory, GB",
    "of what it may take",
)


def publish(repo: Path, figures: Figures) -> None:
    """Keep the figures in a checkout, under the machine's number of cores, and refresh its docs.

    Rows that were not measured this time stay.
    """
    name = f"loader-{figures['machine']['cpus']}-cores.json"
    path = repo / _RESULTS / name
    cases = {(case["case"], case["workers"]): case for case in _known(path) + figures["cases"]}
    write_json(path, figures | {"cases": list(cases.values())})
    document = repo / DOCS
    refresh_block(document, MARK, document_block(repo))
    print(f"refreshed {document} and {path}")


def document_block(repo: Path) -> str:
    """Return the tables of all machines, the smallest first."""
    found = [read_figures(path) for path in (repo / _RESULTS).glob("loader-*-cores.json")]
    return "\n\n".join(
        f"On {figures['machine']['cpus']} cores of {figures['machine']['cpu']}:\n\n"
        + markdown_table(_HEADER, [_row(case) for case in figures["cases"]])
        for figures in sorted(found, key=lambda figures: int(figures["machine"]["cpus"]))
    )


def _known(path: Path) -> list[Figures]:
    return list(read_figures(path)["cases"]) if path.exists() else []


def _row(case: Figures) -> list[Any]:
    measured = f"first {case['seconds']:.0f} s" if case["seconds"] else "two epochs"
    return [
        case["case"],
        case["workers"],
        # Rows from before there was `--cold` do not say that they are.
        f"{measured}, cold" if case.get("cold", True) else measured,
        case["floor_images_per_s"],
        case["images_per_s"],
        case["over_floor"],
        "" if case["goal"] is None else str(case["goal"]),
        case["first_batch_s"],
        case["lowest_over_median"],
        case["amplification"],
        case["tree_bytes"] / 1e9,
        case["tree_bytes"] / case["allowed_bytes"],
    ]
