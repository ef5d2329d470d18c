# SPDX-License-Identifier: Apache-2.0
"""Exceptions of users' functions: none looks like the end of an iterator, none ends a worker."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from robostream import LeRobotDataset
from robostream.errors import SelectionError, WorkerError
from tests.loader.streams import AV1, flat, open_loader, open_stream


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect torch's iterators here: in the fork of a later test, that may never end."""
    yield
    gc.collect()


class MyEnd(StopIteration):
    """A user's own kind of StopIteration."""


class Raise:
    """A transform that raises on every picture that is not black; the trial picture is."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        """Raise, or return the picture."""
        if picture.float().mean() > 0:
            raise self._error("enough")
        return picture


def _items(error: type[BaseException]) -> LeRobotDataset:
    return LeRobotDataset("some/name", root=AV1, image_transforms=Raise(error))


def _stream(error: type[BaseException], **options: Any) -> Any:
    return open_stream(image_transforms=Raise(error), **options)


# What a user loops over, made with a transform that raises.
FORMS: dict[str, Callable[[type[BaseException]], Iterable[Any]]] = {
    "loader": lambda error: open_loader(_stream(error), 4),
    "loader with workers": lambda error: open_loader(_stream(error), 4, num_workers=1),
    "loader to a device": lambda error: open_loader(_stream(error), 4, device="cpu"),
    "quarantine": lambda error: open_loader(_stream(error, on_bad_episode="quarantine"), 4),
    "quarantine with workers": lambda error: open_loader(
        _stream(error, on_bad_episode="quarantine"), 4, num_workers=1
    ),
    "stream": _stream,
    "stream under quarantine": lambda error: _stream(error, on_bad_episode="quarantine"),
    "plain DataLoader": lambda error: DataLoader(_stream(error), 4),
    "plain DataLoader with workers": lambda error: DataLoader(
        _stream(error), 4, num_workers=1, multiprocessing_context="fork"
    ),
    "StatefulDataLoader": lambda error: StatefulDataLoader(_stream(error), 4),
    "items": _items,
    "items in a DataLoader": lambda error: DataLoader(_items(error), 4),
    "items in a DataLoader with workers": lambda error: DataLoader(
        _items(error), 4, num_workers=1, multiprocessing_context="fork"
    ),
}


KINDS = [(form, StopIteration) for form in FORMS]
KINDS += [(form, error) for form in ("loader", "items") for error in (MyEnd, GeneratorExit)]


@pytest.mark.parametrize(("form", "error"), KINDS)
def test_no_exception_of_a_transform_ends_a_loop(form: str, error: type[BaseException]) -> None:
    """It arrives as a RuntimeError that names it, as Python does it for generators."""
    loop = FORMS[form](error)

    with pytest.raises(RuntimeError, match=rf"image_transforms raised {error.__name__}\('enough'"):
        list(loop)


def test_an_index_error_of_a_transform_arrives() -> None:
    """Python ends a loop over a class with items at the first IndexError."""
    with pytest.raises(IndexError, match="enough"):
        list(_items(IndexError))


@pytest.mark.parametrize("reader", [LeRobotDataset, None])
def test_an_episode_filter_ends_no_loop(reader: Any) -> None:
    """`list(map(...))` over datasets would be short without a word."""

    def choose(row: dict[str, Any]) -> bool:
        raise StopIteration(row["episode_index"])

    def open_it(number: int) -> Any:
        if reader is None:
            return open_stream(episode_filter=choose)
        return reader("some/name", root=AV1, episode_filter=choose)

    with pytest.raises(RuntimeError, match=r"episode_filter raised StopIteration\(0\)"):
        list(map(open_it, range(2)))


def test_items_are_looped_over_as_before() -> None:
    """Each once, in order, any number of times."""
    dataset = LeRobotDataset("some/name", root=AV1)
    loops = [[item["index"].item() for item in dataset] for _ in range(2)]

    assert loops == [list(range(62))] * 2


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_worker_survives_what_ends_programs(error: type[BaseException]) -> None:
    """The error says which worker it was and shows where the transform raised it."""
    loader = open_loader(_stream(error), 4, num_workers=1)

    with pytest.raises(WorkerError, match=rf"(?s)loader worker 0 of 1.*__call__.*{error.__name__}"):
        list(loader)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_in_process_it_is_the_programs_own(error: type[BaseException]) -> None:
    """It may come from a signal handler as well. Nothing is lost: the loader continues there."""
    calls: list[int] = []

    def fail_once(picture: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 20:
            raise error("enough")
        return picture

    loader = open_loader(open_stream(image_transforms=fail_once), 4)
    found: list[int] = []
    with pytest.raises(error, match="enough"):
        found.extend(index for batch in loader for index in batch["index"].tolist())
    loader.load_state_dict(loader.state_dict())

    assert sorted(found + flat(loader)) == list(range(62))


@pytest.mark.parametrize("make", [torch.Tensor.bfloat16, torch.Tensor.to_sparse])
def test_a_tensor_that_no_batch_can_hold_is_refused_when_the_loader_is_made(make: Any) -> None:
    """The message names what was returned, and what to return."""
    with pytest.raises(SelectionError, match=r"returned a tensor of type torch\..*tensor\.float"):
        open_loader(open_stream(image_transforms=make), 4)
