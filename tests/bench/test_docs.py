# SPDX-License-Identifier: Apache-2.0
"""Documents show the figures of the checkout's JSON files, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from robostream.bench import gpu, loader, peers, remote, suite
from robostream.bench.results import DOCS, RESULTS, Publication, replace_block
from robostream.errors import RobostreamError
from scripts import compare_png, compare_resize, compare_stats

REPO = Path(__file__).parents[2]
ALL = [
    *(bench.PUBLICATION for bench in (gpu, loader, peers, suite, remote)),
    *(script.PUBLICATION for script in (compare_png, compare_resize, compare_stats)),
]


@pytest.mark.parametrize("publication", ALL, ids=lambda one: one.results)
def test_documents_say_what_the_json_says(publication: Publication) -> None:
    """Every table equals the one made from its JSON."""
    committed = {path: (REPO / path).read_text() for path in publication.documents}

    assert publication.refreshed(REPO) == committed


def drawn(svg: str) -> tuple[list[str], list[float]]:
    """Return all text of a chart, and the outlines of its bars, marks and curves."""
    shapes = r'<g id="(?:bar|mark|curve)[^"]*">.*?d="([^"]*)"'
    lines = re.findall(shapes, svg, re.DOTALL)
    numbers = [float(number) for line in lines for number in re.findall(r"[\d.]+", line)]
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg), numbers


@pytest.mark.parametrize(
    ("publication", "word"),
    [(suite.PUBLICATION, "raw decode speed"), (peers.PUBLICATION, "LeRobot map-style")],
)
def test_the_charts_say_what_the_json_says(publication: Publication, word: str) -> None:
    """Their text and their bars are those that any version of matplotlib draws from the JSON."""
    ((path, draw),) = publication.charts.items()
    texts, outlines = drawn((REPO / path).read_text())
    texts_now, outlines_now = drawn(draw(REPO).decode())

    assert texts_now == texts
    assert outlines_now == pytest.approx(outlines, abs=4)  # versions lay out pixels apart
    assert any(word in text for text in texts)


def test_every_machine_has_its_table() -> None:
    """The docs show the loader on both machines."""
    text = (REPO / DOCS).read_text()

    assert "On 2 cores" in text
    assert "On 16 cores" in text


def test_a_document_without_its_marks_is_refused() -> None:
    """The error names the missing marks."""
    with pytest.raises(RobostreamError, match="bench: begin"):
        replace_block("# some other README", "bench", "figures")


def test_new_figures_replace_those_of_the_same_machine(tmp_path: Path) -> None:
    """The text around the tables and the figures of other machines stay."""
    (tmp_path / "docs").mkdir()
    (tmp_path / RESULTS).mkdir(parents=True)
    (tmp_path / DOCS).write_text("before\n<!-- loader: begin -->\n<!-- loader: end -->\nafter\n")
    figures = json.loads((REPO / RESULTS / "loader-16-cores.json").read_text())
    loader.PUBLICATION.publish(tmp_path, figures)
    loader.PUBLICATION.publish(tmp_path, figures | {"machine": figures["machine"] | {"cpus": 4}})
    newer = figures["cases"][0] | {"images_per_s": 123456}
    loader.PUBLICATION.publish(tmp_path, figures | {"cases": [newer]})
    text = (tmp_path / DOCS).read_text()

    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.index("On 4 cores") < text.index("On 16 cores")
    assert text.count("123,456") == 1
    assert text.index("123,456") > text.index("On 16 cores")
    # Rows from before there was --cold were all measured so.
    assert text.count("| single, 2 GiB | 8 | first 6 s, cold |") == 2
    assert text.count("| single, 2 GiB | 16 | first 6 s |") == 2
