# SPDX-License-Identifier: Apache-2.0
"""The tables of `bench gpu`: on a terminal, and in docs/gpu.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from robostream.bench.gpu.cases import LOADER_WORKERS, RGB, STREAMS, YUV
from robostream.bench.results import Figures, read_figures, write_json
from robostream.bench.table import markdown_table, with_block
from robostream.storage import write_bytes_atomic

DOCS = Path("docs/gpu.md")
RESULTS = Path("benchmarks/results/gpu.json")
_MODES = {"single": "single", "sarm": "windows of 8"}


class Table(NamedTuple):
    """A table that is not laid out yet."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


def upload_table(results: Sequence[Figures]) -> Table:
    """Return RGB beside 4:2:0, by pictures, mode and workers. Pure."""
    header = ["pictures", "samples", "workers", "floor", "RGB", "4:2:0", "gain", "of the floor"]
    header += ["decoded"]
    pairs: dict[tuple[Any, ...], dict[str, Figures]] = {}
    for found in sorted(results, key=_place):
        what = (_pictures(found), _MODES[found["mode"]], found["workers"])
        pairs.setdefault(what, {})[found["way"]] = found
    rows = []
    for what, ways in pairs.items():
        rgb, yuv = ways[RGB]["images_per_s"], ways[YUV]["images_per_s"]
        more = [ways[YUV][name] for name in ("over_floor", "decoded_per_delivered")]
        rows.append([*what, ways[YUV]["floor_images_per_s"], rgb, yuv, yuv / rgb, *more])
    return Table(header, rows)


def nvdec_table(results: Sequence[Figures]) -> Table:
    """Return what processes decode alone, and what loaders deliver, by pictures and codec. Pure."""
    header = ["pictures", "codec", "GOP"]
    header += [f"{n} alone" for n in STREAMS] + [f"loader, {n}" for n in LOADER_WORKERS]
    rows: dict[tuple[Any, ...], list[str]] = {}
    for found in results:
        what = (_pictures(found), found["codec"], found["gop"])
        cells = rows.setdefault(what, [""] * (len(header) - len(what)))
        for one in found.get("by_streams", ()):
            cells[STREAMS.index(one["streams"])] = _rate(one)
        if not found["streams"]:
            cells[len(STREAMS) + LOADER_WORKERS.index(found["workers"])] = _rate(found)
    return Table(header, [[*what, *cells] for what, cells in rows.items()])


def publish(repo: Path, figures: Figures) -> None:
    """Keep the figures in a checkout and refresh its docs; what was not measured stays."""
    path, document = repo / RESULTS, repo / DOCS
    kept = merge(read_figures(path) if path.exists() else {}, figures)
    write_json(path, kept)
    write_bytes_atomic(document, with_tables(document.read_text(), kept).encode())
    print(f"refreshed {document} and {path}")


def merge(known: Figures, new: Figures) -> Figures:
    """Return known figures, with new rows in the place of those of the same case. Pure."""
    rows = {
        part: {name_case(row): row for row in [*known.get(part, ()), *new.get(part, ())]}
        for part in ("uploads", "nvdec")
    }
    return known | new | {part: list(found.values()) for part, found in rows.items()}


def name_case(row: Figures) -> str:
    """Return what tells a row's case from others, before it was written as JSON and after. Pure."""
    names = ("way", "codec", "gop", "size", "window_s", "workers", "resize", "streams")
    return json.dumps([row[name] for name in names])


def with_tables(text: str, figures: Figures) -> str:
    """Return the docs with tables of these figures. Pure."""
    uploads, nvdec = upload_table(figures["uploads"]), nvdec_table(figures["nvdec"])
    text = with_block(text, "gpu uploads", markdown_table(*uploads))
    return with_block(text, "gpu nvdec", markdown_table(*nvdec))


def _place(found: Figures) -> tuple[Any, ...]:
    """Return where in the table a row of figures stands."""
    return found["size"], found["resize"] or [], len(found["window_s"]), found["workers"]


def _pictures(found: Figures) -> str:
    resized = "" if found["resize"] is None else f" to {_size(found['resize'])}"
    return _size(found["size"]) + resized


def _size(size: Iterable[int]) -> str:
    height, width = size
    return f"{width}x{height}"


def _rate(found: Figures) -> str:
    in_use = found["decoders_in_use"]
    return f"{found['images_per_s']:,.0f}" + ("" if in_use is None else f" ({in_use:.2f})")
