# SPDX-License-Identifier: Apache-2.0
"""Which cases a command was asked to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from robostream.errors import SelectionError

T = TypeVar("T")


def choose_named(known: Mapping[str, T], names: Sequence[str]) -> list[T]:
    """Return what is named, in the order it is known in; all if nothing is named. Pure."""
    if unknown := sorted(set(names) - set(known)):
        raise SelectionError(f"want some of {', '.join(known)}; got {', '.join(unknown)}")
    return [one for name, one in known.items() if not names or name in names]
