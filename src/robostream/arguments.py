# SPDX-License-Identifier: Apache-2.0
"""Checks what was given for an argument, and says by its name what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

from robostream.errors import SelectionError

# Arguments whose values are never printed, also where they are of the wrong kind.
_SECRETS = ("token", "storage_options")


def whole_number(value: object, name: str, least: int, most: int | None = None) -> int:
    """Return the whole number that was given for the argument `name`, as a Python int.

    Python's and numpy's integers are taken. True and 3.0 are refused, because they are more often
    given by mistake than on purpose.
    """
    if is_whole(value) and value >= least and (most is None or value <= most):
        return int(value)
    limits = f">= {least}" if most is None else f">= {least} and <= {most}"
    raise SelectionError(f"{name} must be {limits}, a whole number; got {value!r}")


def number(value: object, name: str, *, or_zero: bool = False) -> float:
    """Return the number above 0 that was given for the argument `name`, as Python's.

    What is whole comes back as an int.
    """
    if is_number(value) and (value > 0 or (or_zero and value == 0)):
        return int(value) if is_whole(value) else float(value)
    wanted = "a number of 0 or more" if or_zero else "a number above 0"
    raise SelectionError(f"{name} must be {wanted}; got {value!r}")


def truth(value: object, name: str) -> bool:
    """Return the True or False, Python's or numpy's, that was given for the argument `name`.

    Nothing else is taken for one of them: "no" would be true.
    """
    return bool(of_kind(value, name, bool | np.bool_, "True or False"))


def dataset_name(repo_id: object) -> str:
    """Return the text that was given as the name of a dataset."""
    wanted = "a text: a name such as 'owner/name', a folder or a URL"
    return str(of_kind(repo_id, "repo_id", str, wanted))


def path(value: object, name: str) -> Any:
    """Return the path or URL that was given for the argument `name`, or None."""
    return of_kind(value, name, str | os.PathLike | None, "a path, as a text or a Path")


def of_kind(value: object, name: str, kind: Any, wanted: str) -> Any:
    """Return what was given for the argument `name` if isinstance() says it is of that kind."""
    if isinstance(value, kind):
        return value
    found = f"a value of type {type(value).__name__}" if name in _SECRETS else f"{value!r:.200}"
    raise SelectionError(f"{name} must be {wanted}; got {found}")


def whole_numbers(values: object, name: str) -> list[int]:
    """Return the whole numbers of a list, an array or anything else to iterate over."""
    return [int(value) for value in _listed(values, name, is_whole, "whole numbers, [0, 3]")]


def numbers(values: object, name: str) -> list[float]:
    """Return the numbers of a list, an array or anything else to iterate over."""
    listed = _listed(values, name, is_number, "numbers, [-0.1, 0]")
    try:
        return [float(value) for value in listed]
    except OverflowError as error:
        raise SelectionError(
            f"want {name} as a list of numbers that fit 64 bits; {error}"
        ) from None


def names(values: object, name: str) -> list[str]:
    """Return the texts of a list or anything else to iterate over, but not of a text."""
    return _listed(values, name, lambda value: isinstance(value, str), 'names, ["a", "b"]')


def _listed(values: object, name: str, fits: Callable[[object], bool], wanted: str) -> list[Any]:
    # tolist() turns a whole array into Python numbers much faster than a loop over its elements.
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str | bytes) or not isinstance(plain, Iterable):
        raise SelectionError(f"want {name} as a list of {wanted}; got {values!r}")
    elements = list(plain)
    for place, element in enumerate(elements):
        if not fits(element):
            raise SelectionError(
                f"want {name} as a list of {wanted}; number {place} of it is {element!r}"
            )
    return elements


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer, Python's or numpy's. True is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number, Python's or numpy's. True is none."""
    return isinstance(value, Real) and not isinstance(value, bool)
