# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes as text, such as "2GiB"."""

from __future__ import annotations

import re

from robostream.arguments import is_whole
from robostream.errors import SelectionError

_MAX_LENGTH = 32
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("", 1024), ("ib", 1024), ("i", 1024), ("b", 1000))
}


def parse_bytes(size: float | str) -> int:
    """Return the bytes of a whole number, such as 2e9, or of a text such as "2GiB" or "64k"."""
    if isinstance(size, str):
        match = _SIZE.fullmatch(size) if len(size) < _MAX_LENGTH else None
        if match is not None and match[2].lower() in _UNITS:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    elif is_whole(size) or (isinstance(size, float) and size.is_integer()):
        if size < 0:
            raise SelectionError(f"want a size of 0 bytes or more, got {size}")
        return int(size)
    raise SelectionError(
        f"want a size such as 2GiB, 500MB or a whole number of bytes, got {size!r}"
    )


def format_bytes(size: float) -> str:
    """Return a size as text, such as "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
