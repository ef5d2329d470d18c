# SPDX-License-Identifier: Apache-2.0
"""Iterators with a progress bar, shared by threads, copied; what of a loader is fixed."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from robostream.errors import SelectionError, StateError
from tests.loader.programs import HEAD
from tests.loader.streams import AV1, blind_stream, flat, indices, open_loader, open_stream
from tests.terminal import shown_on_terminal


def test_an_iterator_with_a_progress_bar_has_a_length() -> None:
    """How many batches are left."""
    iterator = iter(open_loader(blind_stream(), 4, progress=True))
    next(iterator)

    assert len(iterator) == 15


def test_threads_share_an_iterator_with_a_progress_bar() -> None:
    """While one thread waits for its batch, another may ask for the next."""
    batches: list[list[int]] = [[], []]

    def take(number: int) -> None:
        batches[number] = next(iterator)["index"].tolist()

    second = threading.Thread(target=take, args=(1,))

    def shrink(picture: torch.Tensor) -> torch.Tensor:
        if picture.float().mean() > 0 and second.ident is None:
            second.start()
            second.join(0.3)  # it asks now, and waits until this thread has its batch
        return picture[:, ::4, ::4]

    iterator = iter(open_loader(open_stream(image_transforms=shrink), 4, progress=True))
    take(0)
    second.join()

    assert batches == indices(open_loader(blind_stream(), 4))[:2]


@pytest.mark.long
def test_a_terminal_shows_the_progress() -> None:
    """To the last batch, also of an epoch that is left early."""
    code = (
        HEAD
        + """
loader = StreamingDataLoader(open_loader(0).dataset, 4, num_workers=0, progress=True)
next(iter(loader))
assert len(frames(loader)) == 62
"""
    )
    shown = shown_on_terminal([sys.executable, "-c", code, str(AV1)], columns=200)

    assert "epoch 0   6% |" in shown
    assert "epoch 1 100% |" in shown
    assert "samples/s" in shown
    assert "waited" in shown


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("kind", COPIES)
def test_iterators_are_not_copied(kind: str) -> None:
    """A copy would take batches that the other then does not deliver."""
    for source in (open_loader(blind_stream(), 4), blind_stream()):
        iterator = iter(source)
        next(iterator)
        with pytest.raises(SelectionError, match=r"cannot be copied.*iter\(\) on the copy"):
            COPIES[kind](iterator)
        rest = sum(1 for _ in iterator)

        assert rest == len(source) - 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_workers", 3), ("prefetch_factor", 9), ("pin_memory", True), ("collate_fn", list)],
)
def test_attributes_that_workers_start_with_are_fixed(name: str, value: Any) -> None:
    """As torch refuses another batch_size."""
    loader = open_loader(blind_stream(), 4)
    before = getattr(loader, name)
    with pytest.raises(ValueError, match=f"{name} of a StreamingDataLoader cannot be set"):
        setattr(loader, name, value)
    with pytest.raises(ValueError, match="cannot be set"):
        setattr(copy.copy(loader), name, value)

    assert getattr(loader, name) == before
    assert sorted(flat(loader)) == list(range(62))


@pytest.mark.parametrize("lanes", [10**12, 10**30])
def test_a_state_with_absurd_lanes_is_refused(lanes: int) -> None:
    """Before memory is taken for them."""
    state = blind_stream().state_dict() | {"lanes": lanes}
    with pytest.raises(StateError, match=rf"number of lanes \(lanes\): {lanes} in the state"):
        open_loader(blind_stream(), 4).load_state_dict(state)
    with pytest.raises(SelectionError, match="lanes must be >= 1 and <= 1048576"):
        blind_stream(lanes=lanes)
