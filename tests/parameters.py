# SPDX-License-Identifier: Apache-2.0
"""Parameters of tests and numbers of examples: fewer in `make test`, all in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def long_except(values: Iterable[Any], *short: Any) -> list[Any]:
    """Return the values as parameters; those that are not among `short` are marked long."""
    return [v if v in short else pytest.param(v, marks=pytest.mark.long) for v in values]


def long_rows_except(rows: Iterable[tuple[Any, ...]], *short: tuple[Any, ...]) -> list[Any]:
    """Do the same for parameters of several arguments, given as tuples."""
    return [r if r in short else pytest.param(*r, marks=pytest.mark.long) for r in rows]


def examples(count: int) -> settings:
    """Return settings for so many examples, or, with the profile "short", for a fifth of them."""
    return settings(max_examples=max(1, count * settings().max_examples // 100))
