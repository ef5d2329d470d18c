# SPDX-License-Identifier: Apache-2.0
"""Numbers and sizes as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robostream import config
from robostream.config import format_bytes, parse_bytes, whole_number, whole_numbers
from robostream.errors import SelectionError


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


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_become_pythons(value: Any) -> None:
    """Python's and numpy's integers are taken."""
    assert type(whole_number(value, "seed", 3)) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), "3", None, 2, [3]], ids=repr)
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    """The message names the argument and what was given."""
    with pytest.raises(SelectionError, match="seed must be >= 3, a whole number; got"):
        whole_number(value, "seed", 3)


@pytest.mark.parametrize(
    "values",
    [
        [0, 3],
        (0, 3),
        range(0, 6, 3),
        {0, 3},
        np.array([0, 3]),
        [np.int8(0), 3],
        torch.tensor([0, 3]),
    ],
)
def test_lists_of_whole_numbers(values: Any) -> None:
    """Anything that holds whole numbers will do."""
    assert whole_numbers(values, "episodes") == [0, 3]


@pytest.mark.parametrize(
    "values",
    ["12", b"12", 12, None, [True, False], [1.9], [1, "2"], [[1]], np.array([1.0]), np.array(3)],
    ids=repr,
)
def test_what_holds_something_else_is_refused(values: Any) -> None:
    """A text is no list of digits, True is not 1, and 1.9 is neither 1 nor 2."""
    with pytest.raises(SelectionError, match="want episodes as a list of whole numbers"):
        whole_numbers(values, "episodes")


@pytest.mark.parametrize(
    ("value", "want"), [(2, int), (np.uint8(2), int), (0.5, float), (np.float32(0.5), float)]
)
def test_numbers_become_pythons(value: Any, want: type) -> None:
    """What is whole stays whole."""
    found = config.number(value, "timeout")

    assert found == value
    assert type(found) is want


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, np.True_, "1", None, [1], 1j])
def test_what_is_no_number_above_0_is_refused(value: Any) -> None:
    """0 is taken only where it means something."""
    with pytest.raises(SelectionError, match="timeout must be a number above 0; got"):
        config.number(value, "timeout")

    assert config.number(0, "timeout", or_zero=True) == 0


@pytest.mark.parametrize("value", ["no", "", 0, 1, None, 1.0, [], np.array([True, False])])
def test_what_is_neither_true_nor_false_is_refused(value: Any) -> None:
    """Python takes everything for one of the two."""
    with pytest.raises(SelectionError, match="shuffle must be True or False; got"):
        config.truth(value, "shuffle")

    assert config.truth(np.True_, "shuffle") is True


def test_secrets_are_not_printed() -> None:
    """A token that is not a text is a token nevertheless."""
    with pytest.raises(SelectionError, match=r"token must be a text; got a value of type bytes$"):
        config.of_kind(b"hf_secret", "token", str, "a text")
