# SPDX-License-Identifier: Apache-2.0
"""Image transforms: the same augmentation wherever they run, or refused with the reason."""

from __future__ import annotations

import functools
import random
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from robostream.batches import transform_images
from robostream.errors import SelectionError
from tests.loader.programs import run
from tests.loader.streams import open_loader, open_stream
from tests.parameters import long_except, long_rows_except

TOP = "observation.images.top"
# As version 0.1.0 drew them.
GOLDEN = [[236, 405, 261], [12, 845, 541], [974, 524, 284]]


def augment(picture: torch.Tensor, most: int = 9) -> torch.Tensor:
    """Draws from all three generators."""
    noise = torch.randint(most, (1, 1, 1)) + random.randrange(most) + np.random.randint(most)
    return picture[:, ::4, ::4] // 2 + noise.to(torch.uint8)


def pictures_of(workers: int, *, skip: int = 0, batch_size: int = 6) -> dict[int, torch.Tensor]:
    """The pictures of two epochs by epoch and index, of a run resumed after some batches."""
    loader = open_loader(open_stream(image_transforms=augment), batch_size, num_workers=workers)
    if skip:
        loader.load_state_dict({"batches_consumed": skip, "batch_size": batch_size})
    found = {}
    for epoch in range(2):
        for batch in loader:
            for place, index in enumerate(batch["index"].tolist()):
                found[epoch * 100 + index] = batch[TOP][place].clone()
    return found


@pytest.fixture(scope="module")
def expected() -> dict[int, torch.Tensor]:
    return pictures_of(0)


@pytest.mark.parametrize(
    ("workers", "skip", "batch_size"),
    long_rows_except(
        [(0, 0, 7), (0, 4, 6), (1, 0, 6), (2, 0, 6), (2, 4, 6), (3, 0, 6), (3, 0, 7), (5, 2, 6)],
        (0, 0, 7),
        (0, 4, 6),
        (2, 4, 6),
    ),
)
def test_augmentation_is_the_same_for_any_workers_and_after_a_resume(
    expected: dict[int, torch.Tensor], workers: int, skip: int, batch_size: int
) -> None:
    """Draws depend on seed, epoch, position and camera, on nothing else."""
    found = pictures_of(workers, skip=skip, batch_size=batch_size)

    assert len(found) == 2 * 62 - skip * batch_size
    assert all(torch.equal(picture, expected[key]) for key, picture in found.items())


def test_augmentation_differs_from_epoch_to_epoch(expected: dict[int, torch.Tensor]) -> None:
    """A frame is augmented in another way in each epoch."""
    same = [torch.equal(expected[index], expected[100 + index]) for index in range(62)]

    assert sum(same) < 20


@pytest.mark.parametrize("workers", [0, 1])
def test_the_consumers_own_generators_are_left_alone(workers: int) -> None:
    """Loading does not change the random numbers that the training draws."""

    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), torch.rand(()).item()

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    wanted = [draw() for _ in range(4)]
    seed()
    loader = open_loader(open_stream(image_transforms=augment), 20, num_workers=workers)
    found = [draw() for _ in zip(loader, range(4), strict=True)]

    assert found == wanted


class Scale:
    """A transform with state."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        """Take every step-th row and column."""
        return picture[:, :: self.step, :: self.step]


def _closure(step: int) -> Any:
    return lambda picture: picture[:, ::step, ::step]


KINDS: dict[str, Any] = {
    "lambda": lambda p: p[:, ::4, ::4],
    "closure": _closure(4),
    "partial": functools.partial(augment, most=3),
    "object": Scale(4),
}


def _apply_all(transforms: list[Any], picture: torch.Tensor) -> torch.Tensor:
    return torch.cat([transform(picture) for transform in transforms])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_function_reaches_the_workers(kind: str) -> None:
    """Lambdas, closures, partials and objects work."""
    loader = open_loader(open_stream(image_transforms=KINDS[kind]), 4, num_workers=1)

    assert next(iter(loader))[TOP].shape == (4, 3, 12, 16)


def test_functions_of_all_kinds_reach_a_worker_together() -> None:
    """A partial of lambdas, closures, partials and objects works."""
    together = functools.partial(_apply_all, list(KINDS.values()))
    loader = open_loader(open_stream(image_transforms=together), 4, num_workers=1)

    assert next(iter(loader))[TOP].shape == (4, 12, 12, 16)


@pytest.mark.long
def test_functions_and_errors_of_a_script_travel() -> None:
    """What is defined in __main__ works in workers, and its exceptions come back as they are."""
    run("""
class Mine(Exception):
    pass
LIMIT = 30
def check(picture):
    if picture.float().mean() > LIMIT: raise Mine("too bright", 7)
    return picture
loader = open_loader(2, camera_keys=None, image_transforms=check)
try:
    frames(loader)
except Mine as error:
    assert error.args == ("too bright", 7), error.args
    assert "sample of episode" in str(error.__cause__) and "in check" in str(error.__cause__)
else:
    raise AssertionError
""")


@pytest.mark.long
@pytest.mark.parametrize("reader", ["LeRobotDataset", "StreamingLeRobotDataset"])
def test_functions_of_a_notebook_reach_workers_that_torch_spawns(reader: str) -> None:
    """A plain DataLoader pickles its dataset, and pickle knows functions by name only."""
    run(f"""
import robostream
from torch.utils.data import DataLoader
def shrink(picture):
    return picture[:, ::4, ::4]
for transform in (shrink, lambda picture: picture[:, ::4, ::4]):
    dataset = robostream.{reader}("some/name", root=sys.argv[1], image_transforms=transform)
    loader = DataLoader(dataset, 4, num_workers=1, multiprocessing_context="spawn")
    first, *_ = loader
    assert first[dataset.meta.camera_keys[0]].shape == (4, 3, 12, 16)
""")


def test_what_cannot_be_copied_is_refused_by_spawned_workers_too() -> None:
    """The error of a plain DataLoader says what to do."""
    lock = threading.Lock()
    stream = open_stream(image_transforms=lambda picture: lock and picture)
    loader = DataLoader(stream, 4, num_workers=1, multiprocessing_context="spawn")

    with pytest.raises(SelectionError, match=r"cannot pickle.*lock.*num_workers=0"):
        next(iter(loader))


def test_what_cannot_be_copied_is_refused_with_the_cure() -> None:
    """A transform that holds a lock works at home only, and that is said."""
    lock = threading.Lock()

    def guarded(picture: torch.Tensor) -> torch.Tensor:
        with lock:
            return picture

    stream = open_stream(image_transforms=guarded)
    with pytest.raises(SelectionError, match=r"guarded.*cannot pickle.*lock.*num_workers=0"):
        list(open_loader(stream, 8, num_workers=2))
    assert len(list(open_loader(stream, 8))) == 8


def uneven(picture: torch.Tensor) -> torch.Tensor:
    """Black pictures stay whole, others are cut."""
    return picture if picture.float().mean() == 0 else picture[:, 1:]


@pytest.mark.parametrize("workers", [0, 1])
def test_different_shapes_are_refused(workers: int) -> None:
    """All samples of a batch must be alike; the message says which were found."""
    loader = open_loader(open_stream(image_transforms=uneven), 8, num_workers=workers)

    with pytest.raises(SelectionError, match=r"(47, 64).*(48, 64).*resize.*sample of episode \d"):
        list(loader)


def test_what_returns_no_tensor_is_refused_at_once() -> None:
    """When a loader is made, the transform is tried on a black picture."""
    with pytest.raises(SelectionError, match="must return a tensor, got str"):
        open_loader(open_stream(image_transforms=lambda picture: "text"), 8)


def fail(picture: torch.Tensor) -> torch.Tensor:
    if picture.float().mean() > 0:
        raise KeyError("no such augmentation")
    return picture


@pytest.mark.parametrize("workers", long_except([0, 1, 3], 0, 1))
def test_an_error_of_a_transform_keeps_its_type(workers: int) -> None:
    """A user's own exception arrives as it is, with the sample, and where it was raised."""
    loader = open_loader(open_stream(image_transforms=fail), 4, num_workers=workers)
    with pytest.raises(KeyError, match=r"no such augmentation.*sample of episode") as caught:
        next(iter(loader))
    if workers:
        assert ", in fail" in str(caught.value.__cause__)
    else:
        assert caught.traceback[-1].name == "fail"


def test_an_error_that_does_not_come_back_is_raised() -> None:
    """An error of a transform is raised; the transform is not tried a second time."""
    calls: list[int] = []

    def fail_once(picture: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 20:
            raise RuntimeError("a hiccup")
        return picture

    with pytest.raises(RuntimeError, match="a hiccup"):
        list(open_loader(open_stream(image_transforms=fail_once), 8))


def test_draws_of_a_sample_do_not_change_from_version_to_version() -> None:
    """They follow from seed, epoch, position and camera."""
    drawn = []

    def draw(picture: torch.Tensor) -> torch.Tensor:
        drawn.append(
            [random.randrange(1000), np.random.randint(1000), int(torch.randint(1000, ()))]
        )
        return picture

    for key in ((42, 0, 0, 0), (42, 0, 1, 0), (7, 3, 10**9, 2)):
        transform_images(draw, np.zeros((3, 2, 2), np.uint8), key=key)

    assert drawn == GOLDEN


def test_seeding_is_cheap() -> None:
    """An identity takes about 0.02 ms of CPU per picture; it was 0.16 ms."""
    picture, best_s = np.zeros((3, 64, 64), np.uint8), 1.0
    for number in range(20):
        began_s = time.process_time()
        for position in range(50):
            transform_images(lambda p: p, picture, key=(42, number, position, 0))
        best_s = min(best_s, (time.process_time() - began_s) / 50)

    assert best_s < 0.08e-3
