# SPDX-License-Identifier: Apache-2.0
"""What worker processes are sent, though only the user's script or notebook defines it."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from typing import Any

import cloudpickle

from robostream.assemble import ImageTransforms
from robostream.errors import SelectionError


class _ByValue:
    """Becomes the value itself where it is unpickled."""

    def __init__(self, value: Any, transforms: ImageTransforms) -> None:
        self._value, self._transforms = value, transforms

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        try:
            return cloudpickle.loads, (cloudpickle.dumps(self._value),)
        except Exception as error:  # a user's object may do anything here
            raise cannot_be_sent(self._transforms, error) from error


def for_pickle(state: dict[str, Any], transforms: ImageTransforms | None) -> Any:
    """Return the state of a dataset as it is to be pickled.

    A plain DataLoader sends its dataset to workers that it spawns by pickle. Pickle sends only the
    name of a function, which the worker does not find if a script or a notebook defines it. So a
    state with transforms travels by cloudpickle, which sends the function itself.
    """
    if transforms is None or get_spawning_popen() is None:
        return state
    return _ByValue(state, transforms)


def cannot_be_sent(transforms: ImageTransforms, error: Exception) -> SelectionError:
    """Return the error to raise if transforms cannot be pickled."""
    return SelectionError(
        f"image_transforms={transforms!r} cannot be sent to worker processes: "
        f"{type(error).__name__}: {error}. Let it make what cannot be copied when it is first "
        "called, put it into a module as a function, or use num_workers=0."
    )
