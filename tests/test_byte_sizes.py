# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robostream.byte_sizes import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("size", "want"),
    [
        (0, 0),
        (2e9, 2_000_000_000),
        (np.int64(5), 5),
        (np.float64(2**40), 2**40),
        ("64k", 65_536),
        ("500mb", 500_000_000),
        (" 1.5 GiB ", 3 * 2**29),
        ("12", 12),
    ],
)
def test_sizes(size: Any, want: int) -> None:
    """Whole numbers of any kind and texts with a unit become Python ints."""
    found = parse_bytes(size)

    assert found == want
    assert type(found) is int


@pytest.mark.parametrize(
    "size", [True, 1.5, float("inf"), float("nan"), -1, -2.0, None, [1], "", "2 XB", "-5"]
)
def test_what_is_no_size_is_refused(size: Any) -> None:
    """The message shows what was given."""
    with pytest.raises(ValueError, match="want a size") as refusal:
        parse_bytes(size)

    assert str(size) in str(refusal.value)


def test_sizes_are_written_as_people_read_them() -> None:
    """The unit is the largest that leaves a number of at least 1."""
    assert [format_bytes(size) for size in (0, 1023, 1536, 2**40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1.0 TiB",
    ]
