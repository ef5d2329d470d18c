# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from robostream.tools import page_html, section_html, table_html, tile_html


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
