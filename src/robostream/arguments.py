# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments: each returns the value as a plain Python type, or raises with its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

from robostream.errors import SelectionError

# Arguments whose values are never printed.
_SECRETS = ("token", "storage_options")


def whole_number(value: object, name: str, least: int, most: int | None = None) -> int:
    """Return an integer of Python or numpy within the limits as an int, else raise.

    True and 3.0 are rejected: they are usually mistakes.
    """
    if is_whole(value) and value >= least and (most is None or value <= most):
        return int(value)
    limits = f">= {least}" if most is None else f">= {least} and <= {most}"
    raise SelectionError(f"{name} must be {limits}, a whole number; got {value!r}")


def number(value: object, name: str, *, or_zero: bool = False) -> float:
    """Return a positive number, or 0 if `or_zero`, as an int or float; else raise."""
    if is_number(value) and (value > 0 or (or_zero and value == 0)):
        return int(value) if is_whole(value) else float(value)
    wanted = "a number of 0 or more" if or_zero else "a number above 0"
    raise SelectionError(f"{name} must be {wanted}; got {value!r}")


def truth(value: object, name: str) -> bool:
    """Return a boolean of Python or numpy as a bool; raise for anything else, such as "no"."""
    return bool(of_kind(value, name, bool | np.bool_, "True or False"))


def dataset_name(repo_id: object) -> str:
    """Return the name of a dataset if it is a string, else raise."""
    wanted = "a text: a name such as 'owner/name', a folder or a URL"
    return str(of_kind(repo_id, "repo_id", str, wanted))


def path(value: object, name: str) -> Any:
    """Return a path, a URL or None, else raise."""
    return of_kind(value, name, str | os.PathLike | None, "a path, as a text or a Path")


def of_kind(value: object, name: str, kind: Any, wanted: str) -> Any:
    """Return the value if it is an instance of `kind`, else raise."""
    if isinstance(value, kind):
        return value
    found = f"a value of type {type(value).__name__}" if name in _SECRETS else f"{value!r:.200}"
    raise SelectionError(f"{name} must be {wanted}; got {found}")


def whole_numbers(values: object, name: str) -> list[int]:
    """Return the integers of a list, array or other iterable, else raise."""
    return [int(value) for value in _listed(values, name, is_whole, "whole numbers, [0, 3]")]


def numbers(values: object, name: str) -> list[float]:
    """Return the numbers of a list, array or other iterable as floats, else raise."""
    listed = _listed(values, name, is_number, "numbers, [-0.1, 0]")
    try:
        return [float(value) for value in listed]
    except OverflowError as error:
        raise SelectionError(
            f"want {name} as a list of numbers that fit 64 bits; {error}"
        ) from None


def names(values: object, name: str) -> list[str]:
    """Return the strings of an iterable that is not itself a string, else raise."""
    return _listed(values, name, lambda value: isinstance(value, str), 'names, ["a", "b"]')


def _listed(values: object, name: str, fits: Callable[[object], bool], wanted: str) -> list[Any]:
    # tolist() converts an array to Python numbers much faster than a loop.
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str | bytes) or not isinstance(plain, Iterable):
        raise SelectionError(f"want {name} as a list of {wanted}; got {values!r}")
    elements = list(plain)
    for index, element in enumerate(elements):
        if not fits(element):
            raise SelectionError(
                f"want {name} as a list of {wanted}; number {index} of it is {element!r}"
            )
    return elements


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of Python or numpy. True is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python or numpy. True is not."""
    return isinstance(value, Real) and not isinstance(value, bool)
