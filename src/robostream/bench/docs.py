# SPDX-License-Identifier: Apache-2.0
"""Publish figures in a checkout: its JSON files, and the tables and pictures made from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from robostream.bench.results import Figures, read_figures, write_json
from robostream.errors import RobostreamError
from robostream.storage import write_bytes_atomic

RESULTS = Path("benchmarks/results")


@dataclass(frozen=True, slots=True)
class Publication:
    """The documents that show the figures of one benchmark.

    Attributes:
        document: A Markdown file of the checkout.
        blocks: By the name of its marks, a function that makes the text between them from the
            checkout's JSON files.
        pictures: By path, a function that draws a picture from the checkout's JSON files.
    """

    document: Path
    blocks: Mapping[str, Callable[[Path], str]]
    pictures: Mapping[Path, Callable[[Path], bytes]] = field(default_factory=dict)


def publish(
    repo: Path,
    name: str,
    figures: Figures,
    publication: Publication,
    *,
    merge: Callable[[Figures, Figures], Figures] | None = None,
) -> None:
    """Write figures to a checkout and refresh the document that shows them.

    Args:
        repo: The checkout.
        name: The file in `benchmarks/results`.
        figures: The new figures.
        publication: The document.
        merge: Combines the figures already there with the new ones; None replaces them.
    """
    path = repo / RESULTS / name
    if merge is not None and path.exists():
        figures = merge(read_figures(path), figures)
    write_json(path, figures)
    document = repo / publication.document
    write_bytes_atomic(document, refreshed(repo, publication).encode())
    for picture, draw in publication.pictures.items():
        write_bytes_atomic(repo / picture, draw(repo))
    written = [document, *(repo / picture for picture in publication.pictures), path]
    print(f"refreshed {', '.join(map(str, written))}")


def refreshed(repo: Path, publication: Publication) -> str:
    """Return the document with every block made anew from the checkout's JSON files."""
    text = (repo / publication.document).read_text()
    for mark, make in publication.blocks.items():
        text = replace_block(text, mark, make(repo))
    return text


def replace_block(text: str, mark: str, block: str) -> str:
    """Return a document with another block between its marks. Pure."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    found = re.search(f"{begin}.*{end}", text, re.DOTALL)
    if found is None:
        raise RobostreamError(f"want the lines {begin} and {end} in the document, found none")
    return text[: found.start()] + f"{begin}\n{block}\n{end}" + text[found.end() :]
