# SPDX-License-Identifier: Apache-2.0
"""HTML pages that hold all they need and fetch nothing: the frame, sections, tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from importlib import resources


def read_style(package: str, name: str) -> str:
    """Return a style sheet that lies in a package."""
    return resources.files(package).joinpath(name).read_text()


def page_html(title: str, content: str, style: str) -> str:
    """Return a whole page; `style` follows the style sheet that all pages share."""
    shared = read_style("robostream.tools", "page.css")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>\n{shared}{style}</style></head>\n"
        f"<body><main>\n{content}\n</main></body></html>\n"
    )


def section_html(title: str, lead: str, content: str) -> str:
    """Return a section: its title, a paragraph, and content that is HTML already. Pure."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(lead)}</p>{content}</section>"


def tile_html(what: str, value: str, unit: str, more: str, *, kind: str = "") -> str:
    """Return a tile with one large figure. Pure."""
    return (
        f'<div class="tile {kind}"><span class="what">{escape(what)}</span><b>{escape(value)}</b>'
        f'{escape(unit)}<div class="more">{escape(more)}</div></div>'
    )


def table_html(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, names: Collection[str]
) -> str:
    """Return a table that scrolls sideways; cells are HTML, columns in `names` hold text. Pure."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="name"' if name in names else "" for name in header]
        found = (f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    body = "".join(line("td", row) for row in rows)
    head = line("th", [escape(name) for name in header])
    return f'<div class="wide-table"><table>{head}{body}</table></div>'
