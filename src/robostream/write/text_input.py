# SPDX-License-Identifier: Apache-2.0
"""Whether a text in a frame can be stored as UTF-8. Pure."""

from __future__ import annotations

from typing import Any


def text_fault(value: Any) -> str | None:
    """Return why the value cannot be stored as a text, or None if it can."""
    if not isinstance(value, str):
        return f"want a text, found {value!r:.200}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        start = max(0, error.start - 20)
        return (
            f"want a text that UTF-8 can store, found {value[error.start]!r} at character "
            f"{error.start} of {value[start : error.end + 20]!r}; decode the bytes it came from "
            'with their own encoding, or with errors="replace"'
        )
    return None
