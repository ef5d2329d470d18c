# SPDX-License-Identifier: Apache-2.0
"""Tables of meta/ that contradict each other: an error, or noted while the rest is checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from robostream.errors import MetadataError

_noted: ContextVar[list[MetadataError] | None] = ContextVar("noted", default=None)


@contextmanager
def noting_contradictions() -> Iterator[list[MetadataError]]:
    """Yield a list that collects the contradictions found in the block; none of them is raised."""
    errors: list[MetadataError] = []
    token = _noted.set(errors)
    try:
        yield errors
    finally:
        _noted.reset(token)


def report_contradiction(error: MetadataError) -> None:
    """Raise the error, unless contradictions are noted."""
    noted = _noted.get()
    if noted is None:
        raise error
    noted.append(error)
