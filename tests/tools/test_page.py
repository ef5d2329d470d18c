# SPDX-License-Identifier: Apache-2.0
"""Pages fetch nothing; charts show every value."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robostream.tools import page_html, section_html, table_html, tile_html
from robostream.tools.page import (
    axis_html,
    curves_html,
    format_number,
    histogram_html,
    range_html,
)


def test_a_page_holds_its_styles_and_escapes_its_title() -> None:
    """The shared style comes first, so that a page can change it."""
    page = page_html("a <b>", "<p>content</p>", ".own { color: red; }")

    assert "<title>a &lt;b&gt;</title>" in page
    assert page.index("--paper") < page.index(".own") < page.index("<p>content</p>")


def test_texts_are_escaped_and_content_is_not() -> None:
    """Sections and tiles take texts from datasets; their content is HTML already."""
    assert section_html("<", ">", "<i>") == "<section><h2>&lt;</h2><p>&gt;</p><i></section>"
    assert "<script>" not in tile_html(*["<script>"] * 4)


def test_columns_of_text_are_marked() -> None:
    """The others are numbers, aligned right."""
    table = table_html(("task", "<count>"), [("a", "3")], names=("task",))

    assert '<th class="name">task</th><th>&lt;count&gt;</th>' in table
    assert '<td class="name">a</td><td>3</td>' in table


def lines(html: str) -> list[np.ndarray]:
    """The points of each line of a chart."""
    texts = re.findall(r'points="([^"]*)"', html)
    return [np.array([p.split(",") for p in text.split()], float).reshape(-1, 2) for text in texts]


@given(
    values=hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 30), st.integers(1, 30)),
        elements=st.floats(allow_nan=True, allow_infinity=True, width=32),
    )
)
def test_every_finite_value_is_a_point_of_its_line(values: np.ndarray) -> None:
    """In the middle of its frame's stretch, inside the chart; larger values are higher."""
    drawn = lines(curves_html(values, [str(n) for n in range(values.shape[1])], num_parts=3))

    assert len(drawn) == values.shape[1]
    for points, column in zip(drawn, values.T, strict=True):
        frames = np.flatnonzero(np.isfinite(column))
        np.testing.assert_allclose(points[:, 0], (frames + 0.5) * 1000 / len(column), atol=0.06)
        assert ((points[:, 1] >= 0) & (points[:, 1] <= 100)).all()
        order = np.argsort(column[frames])
        assert (np.diff(points[order, 1]) <= 0.011).all()


def test_one_frame_is_a_line_over_the_whole_width() -> None:
    """A point would not be seen; a value that is not finite is no line."""
    first, second = lines(curves_html(np.array([[1.5, np.nan]]), ["a", "b"], num_parts=1))

    assert first[:, 0].tolist() == [0, 1000]
    assert np.ptp(first[:, 1]) == 0
    assert second.size == 0


def test_a_chart_names_its_bounds_once() -> None:
    """The smallest and the largest value, or the only one."""
    still, moving = (curves_html(np.array([[0.5], [x]]), [""], num_parts=1) for x in (0.5, 2.0))

    assert re.findall(r'class="y (\w+)">([^<]*)', still) == [("middle", "0.5")]
    assert re.findall(r'class="y (\w+)">([^<]*)', moving) == [("top", "2"), ("bottom", "0.5")]


def test_long_lines_keep_their_spikes() -> None:
    """One frame of 100,000 that differs is still seen, with far fewer points."""
    values = np.zeros((100_000, 1))
    values[61_803] = 5.0
    (points,) = lines(curves_html(values, [""], num_parts=9))
    top = points[:, 1].argmin()

    assert len(points) <= 1000
    assert points[top, 1] < 10 < points[:, 1].max()
    assert points[top, 0] == pytest.approx(618.035, abs=0.1)


def test_names_are_escaped_and_more_lines_than_colours_are_dashed() -> None:
    """Nine lines have eight colours."""
    html = curves_html(np.zeros((4, 9)), ["<b>", *"12345678"], num_parts=2)

    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count('class="c0 dash"') == 2  # the line and its legend


@given(lengths=hnp.arrays(np.int64, st.integers(1, 50), elements=st.integers(1, 500)))
def test_bars_count_all_values_and_one_is_marked(lengths: np.ndarray) -> None:
    """The marked bar holds the marked value."""
    html = histogram_html(lengths, marked=float(lengths[0]))
    bars = re.findall(r'class="(bar[^"]*)".*?<title>(\d+) of ([\d,]+) to ([\d,]+)', html)
    (chosen,) = [bar for bar in bars if "chosen" in bar[0]]

    assert sum(int(bar[1]) for bar in bars) == len(lengths)
    assert int(chosen[2]) - 1 <= lengths[0] <= int(chosen[3]) + 1


def test_axes_span_the_chart() -> None:
    """The first text begins at the left edge, the last ends at the right one."""
    places = re.findall(r"left: ([\d.]+)%", axis_html(["0", "1", "2"]))

    assert places == ["0", "50", "100"]


def test_a_range_without_quantiles_has_no_box() -> None:
    """Older datasets record none."""
    entry = {"min": 0.0, "max": 1.0, "mean": 0.5}

    assert "box" not in range_html(entry, 0.0, 2.0)
    assert "box" in range_html(entry | {"q10": 0.1, "q90": 0.1}, 0.0, 0.0)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (-1234567.8, "-1,234,568"), (0.00123456, "0.00123")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    """Large ones have all before the point."""
    assert format_number(value) == text
    assert format_number(float("nan")) == "nan"
