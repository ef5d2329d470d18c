# SPDX-License-Identifier: Apache-2.0
"""Surgery on MP4 boxes, to make files that encoders here do not write."""

from __future__ import annotations

import struct
from pathlib import Path

_CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts")


def children(content: bytes) -> list[tuple[bytes, bytes]]:
    """Return (kind, payload) of the boxes in a payload."""
    found, at = [], 0
    while at < len(content):
        size, kind = struct.unpack_from(">I4s", content, at)
        found.append((kind, content[at + 8 : at + size]))
        at += size
    return found


def box(kind: bytes, payload: bytes) -> bytes:
    """Return a box."""
    return struct.pack(">I4s", len(payload) + 8, kind) + payload


def replace(content: bytes, changes: dict[bytes, bytes | None]) -> bytes:
    """Return boxes with the payloads of some kinds replaced, or those boxes left out (None)."""
    parts = []
    for kind, payload in children(content):
        if kind in changes:
            new = changes[kind]
            parts.append(b"" if new is None else box(kind, new))
        elif kind in _CONTAINERS:
            parts.append(box(kind, replace(payload, changes)))
        else:
            parts.append(box(kind, payload))
    return b"".join(parts)


def payload(content: bytes, kind: bytes) -> bytes:
    """Return the payload of the first box of a kind, wherever it lies."""
    for found, inner in children(content):
        if found == kind:
            return inner
        if found in _CONTAINERS and (deeper := payload(inner, kind)):
            return deeper
    return b""


def rewrite(source: Path, dest: Path, changes: dict[bytes, bytes | None]) -> Path:
    """Copy a file whose moov box comes last, with some boxes replaced."""
    content = source.read_bytes()
    at = content.rindex(b"moov") - 4
    assert struct.unpack_from(">I", content, at)[0] == len(content) - at, "moov must come last"
    dest.write_bytes(content[:at] + replace(content[at:], changes))
    return dest


def edit_list(*edits: tuple[int, int]) -> bytes:
    """Return the payload of an edts box; an edit is (movie ticks, media time)."""
    rows = b"".join(struct.pack(">Iihh", duration, time, 1, 0) for duration, time in edits)
    return box(b"elst", struct.pack(">II", 0, len(edits)) + rows)
