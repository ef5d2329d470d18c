# SPDX-License-Identifier: Apache-2.0
"""The tables of `bench loader` in the docs."""

from __future__ import annotations

import json
from pathlib import Path

from robostream.bench.loader_docs import DOCS, MARK, document_block, publish
from robostream.bench.table import with_block

REPO = Path(__file__).parents[2]
RESULTS = Path("benchmarks/results")


def test_the_docs_say_what_the_json_says() -> None:
    """Every machine's table is made of its JSON, to the last digit."""
    text = (REPO / DOCS).read_text()

    assert with_block(text, MARK, document_block(REPO)) == text
    assert "On 2 cores" in text
    assert "On 16 cores" in text


def test_new_figures_replace_those_of_the_same_machine(tmp_path: Path) -> None:
    """And leave the text around the tables, and the other machine's figures, as they are."""
    (tmp_path / "docs").mkdir()
    (tmp_path / RESULTS).mkdir(parents=True)
    (tmp_path / DOCS).write_text(f"before\n<!-- {MARK}: begin -->\n<!-- {MARK}: end -->\nafter\n")
    figures = json.loads((REPO / RESULTS / "loader-16-cores.json").read_text())
    publish(tmp_path, figures)
    publish(tmp_path, figures | {"machine": figures["machine"] | {"cpus": 4}})
    newer = figures["cases"][0] | {"images_per_s": 123456}
    publish(tmp_path, figures | {"cases": [newer]})
    text = (tmp_path / DOCS).read_text()

    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.index("On 4 cores") < text.index("On 16 cores")
    assert text.count("123,456") == 1
    assert text.index("123,456") > text.index("On 16 cores")
    # Rows from before there was --cold were all measured so.
    assert text.count("| single, 2 GiB | 8 | first 6 s, cold |") == 2
    assert text.count("| single, 2 GiB | 16 | first 6 s |") == 2
