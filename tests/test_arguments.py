# SPDX-License-Identifier: Apache-2.0
"""What is taken for an argument, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robostream import arguments
from robostream.errors import SelectionError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_become_pythons(value: Any) -> None:
    """Python's and numpy's integers are taken."""
    assert type(arguments.whole_number(value, "seed", 3)) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), "3", None, 2, [3]], ids=repr)
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    """The message names the argument and what was given."""
    with pytest.raises(SelectionError, match="seed must be >= 3, a whole number; got"):
        arguments.whole_number(value, "seed", 3)


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
    assert arguments.whole_numbers(values, "episodes") == [0, 3]


@pytest.mark.parametrize(
    "values",
    ["12", b"12", 12, None, [True, False], [1.9], [1, "2"], [[1]], np.array([1.0]), np.array(3)],
    ids=repr,
)
def test_what_holds_something_else_is_refused(values: Any) -> None:
    """A text is no list of digits, True is not 1, and 1.9 is neither 1 nor 2."""
    with pytest.raises(SelectionError, match="want episodes as a list of whole numbers"):
        arguments.whole_numbers(values, "episodes")


@pytest.mark.parametrize(
    ("value", "want"), [(2, int), (np.uint8(2), int), (0.5, float), (np.float32(0.5), float)]
)
def test_numbers_become_pythons(value: Any, want: type) -> None:
    """What is whole stays whole."""
    found = arguments.number(value, "timeout")

    assert found == value
    assert type(found) is want


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, np.True_, "1", None, [1], 1j])
def test_what_is_no_number_above_0_is_refused(value: Any) -> None:
    """0 is taken only where it means something."""
    with pytest.raises(SelectionError, match="timeout must be a number above 0; got"):
        arguments.number(value, "timeout")

    assert arguments.number(0, "timeout", or_zero=True) == 0


@pytest.mark.parametrize("value", ["no", "", 0, 1, None, 1.0, [], np.array([True, False])])
def test_what_is_neither_true_nor_false_is_refused(value: Any) -> None:
    """Python takes everything for one of the two."""
    with pytest.raises(SelectionError, match="shuffle must be True or False; got"):
        arguments.truth(value, "shuffle")

    assert arguments.truth(np.True_, "shuffle") is True


def test_secrets_are_not_printed() -> None:
    """A token that is not a text is a token nevertheless."""
    with pytest.raises(SelectionError, match=r"token must be a text; got a value of type bytes$"):
        arguments.of_kind(b"hf_secret", "token", str, "a text")
