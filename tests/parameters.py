# SPDX-License-Identifier: Apache-2.0
"""Parameters of tests, some of them for `make test-all` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def long_except(values: Iterable[Any], *short: Any) -> list[Any]:
    """Return the values as parameters; those that are not among `short` are marked long."""
    return [v if v in short else pytest.param(v, marks=pytest.mark.long) for v in values]
