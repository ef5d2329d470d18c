# SPDX-License-Identifier: Apache-2.0
"""The contest as tables: on a terminal, and in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robostream.bench.results import Figures, median_ratio, read_figures, write_json
from robostream.bench.table import format_table, markdown_table, refresh_block

MARK = "peers"
PEERS = Path("benchmarks/results/peers.json")
DOCUMENT = Path("docs/benchmarks.md")
_SPEED = (
    "data",
    "mode",
    "loader",
    "used with",
    "samples/s",
    "images/s",
    "robostream is faster",
    "first batch, s",
)
_DELIVERY = (
    "loader",
    "cameras",
    "frames missing",
    "frames repeated",
    "wrong pictures",
    "same order with another worker",
    "episodes per batch of 8",
)


def contest_text(figures: Figures) -> str:
    """Return the tables for a terminal. Pure."""
    tables = [
        format_table(_SPEED, _speed(figures["results"])),
        format_table(_DELIVERY, _delivery(figures["delivery"])),
    ]
    return "\n\n".join([*tables, "\n".join(_remarks(figures))])


def document_block(figures: Figures) -> str:
    """Return what the document says between its marks. Pure."""
    machine, packages = figures["machine"], figures["packages"]
    versions = ", ".join(f"{name} {number}" for name, number in packages.items() if number)
    return "\n\n".join(
        [
            f"On {machine['cpus']} cores of {machine['cpu']}; {figures['workers']} workers each, "
            f"batches of {figures['batch_size']}, uint8; medians of {figures['rounds']} rounds in "
            f"which all take turns. {versions}.",
            markdown_table(_SPEED, _speed(figures["results"])),
            "What each delivers in one epoch of a small dataset, every picture compared with the "
            "one decoded from the file:",
            markdown_table(_DELIVERY, _delivery(figures["delivery"])),
            "\n".join(f"- {remark}" for remark in _remarks(figures)),
        ]
    ).rstrip()


def _remarks(figures: Figures) -> list[str]:
    """Return why some have no figures, each reason once."""
    rows = [*figures["results"], *figures["delivery"]]
    failed = [
        f"{row['contestant']} failed ({row.get('data') or row['stored']}): {row['failed']}"
        for row in rows
        if "failed" in row
    ]
    absent = [f"{name} took no part: its package is not installed" for name in figures["absent"]]
    return [*dict.fromkeys(failed), *absent]


def refresh_docs(repo: Path, figures: Figures) -> None:
    """Keep the figures in a checkout and bring its document up to date."""
    write_json(repo / PEERS, figures)
    document = repo / DOCUMENT
    refresh_block(document, MARK, document_block(read_figures(repo / PEERS)))
    print(f"refreshed {document} and {repo / PEERS}")


def _speed(results: Sequence[Figures]) -> list[list[Any]]:
    ours = {
        (row["data"], row["mode"]): row["images_per_s_rounds"]
        for row in results
        if row["contestant"] == "robostream" and "failed" not in row
    }
    return [_speed_row(row, ours.get((row["data"], row["mode"]))) for row in results]


def _speed_row(row: Figures, ours: list[float] | None) -> list[Any]:
    begin = [row["data"], row["mode"], row["contestant"], row["how"]]
    if "failed" in row:
        return [*begin, "failed", "", "", ""]
    faster = ""
    if ours and row["contestant"] != "robostream":
        faster = f"{median_ratio(ours, row['images_per_s_rounds']):.1f} times"
    return [*begin, row["samples_per_s"], row["images_per_s"], faster, row["first_batch_s"]]


def _delivery(rows: Sequence[Figures]) -> list[list[Any]]:
    return [_delivery_row(row) for row in rows]


def _delivery_row(row: Figures) -> list[Any]:
    begin = [row["contestant"], row["stored"]]
    if "failed" in row:
        return [*begin, "failed", "", "", "", ""]
    return [
        *begin,
        f"{row['missing']} of {row['frames']}",
        row["repeated"],
        f"{row['wrong_pictures']} of {row['pictures']}",
        "yes" if row["same_order_with_more_workers"] else "no",
        row["episodes_per_batch"],
    ]
