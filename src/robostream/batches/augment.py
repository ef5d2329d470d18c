# SPDX-License-Identifier: Apache-2.0
"""The user's image transform: it draws the same random numbers for a sample in any process.

Torch is imported only if there is a transform, because it would take most of a worker's memory.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    ArrayLayout,
    BatchLayout,
    CameraLayout,
    ImageTransforms,
    OpenedDataset,
    SampleLayout,
    plain_batches,
    probe_cameras,
)
from robostream.errors import SelectionError, call_user
from robostream.plan import stream

_AUGMENTATION = 0x41554731


def transform_images(
    transform: ImageTransforms, images: npt.NDArray[Any], *, key: tuple[int, int, int, int]
) -> npt.NDArray[Any]:
    """Return one camera's images of one sample, transformed.

    Seeds all generators. A process that draws from them elsewhere wraps calls in
    `preserve_generators`.

    Args:
        transform: Takes and returns a tensor.
        images: uint8, or float32 in [0, 1]; not changed.
        key: Seed, epoch, position and camera. All random draws follow from them.
    """
    import torch

    seed = stream(_AUGMENTATION, *key)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.default_generator.manual_seed(seed % (1 << 63))
    result = call_user("image_transforms", transform, torch.from_numpy(images))
    if not isinstance(result, torch.Tensor):
        raise SelectionError(f"image_transforms must return a tensor, got {type(result).__name__}")
    try:
        array: npt.NDArray[Any] = result.detach().cpu().numpy()
    except (TypeError, RuntimeError) as error:
        raise SelectionError(
            f"image_transforms returned a tensor of type {result.dtype}, {result.layout}, which a "
            f"batch cannot hold: {error}. End the transform with tensor.float(), or another type "
            "that numpy has."
        ) from error
    return array


def write_transformed(result: npt.NDArray[Any], out: npt.NDArray[Any], camera: str) -> None:
    """Write a transformed image into a batch, whose arrays have the shape of the first one's."""
    if result.shape != out.shape or result.dtype != out.dtype:
        raise SelectionError(
            f"image_transforms returned shape {result.shape} and type {result.dtype} for an image "
            f"of {camera}, but {out.shape} and {out.dtype} for the first one. All samples of a "
            "batch must be alike: end the transform with a resize or a crop to one size."
        )
    out[...] = result


@contextmanager
def preserve_generators(*, is_needed: bool) -> Iterator[None]:
    """Restore the state of all random generators after this block, if it transforms images.

    Saving and restoring them takes ten times as long as seeding them: use one block for many
    images.
    """
    if not is_needed:
        yield
        return
    import torch

    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.random.set_rng_state(states[2])


def probe_layout(dataset: OpenedDataset) -> BatchLayout:
    """Return how samples of a dataset lie in a batch. Opens videos.

    Frames have the size of those in the first selected episode.
    """
    layout = SampleLayout(dataset, probed=probe_cameras(dataset))
    return try_transforms(plain_batches(layout))


def try_transforms(layout: BatchLayout) -> BatchLayout:
    """Return the layout with what the user's transforms return for black frames."""
    if not layout.transforms:
        return layout
    found: dict[str, ArrayLayout] = {}
    for number, camera in enumerate(layout.cameras):
        for source, own in layout.owners(number):
            transform = source.dataset.spec.image_transforms
            result: ArrayLayout = own.shape, np.dtype(own.dtype)
            if transform is not None and own.is_transformed:
                result = _try_transform(transform, own, number)
            if found.setdefault(camera.key, result) != result:
                first = layout.owners(number)[0][0].dataset.meta.repo_id
                raise SelectionError(
                    f"after its transform, {camera.key} is {found[camera.key]} in {first} and "
                    f"{result} in {source.dataset.meta.repo_id}. End all transforms with one size "
                    "and type."
                )
    return dataclasses.replace(layout, transformed=found)


def _try_transform(transform: ImageTransforms, camera: CameraLayout, number: int) -> ArrayLayout:
    black = np.zeros(camera.shape, camera.dtype)
    try:
        with preserve_generators(is_needed=True):
            result = transform_images(transform, black, key=(0, 0, 0, number))
    except SelectionError:
        raise
    except Exception as error:
        raise SelectionError(
            f"image_transforms failed on a black frame of {camera.key}, shape {camera.shape}, type "
            f"{black.dtype}: {type(error).__name__}: {error}"
        ) from error
    return result.shape, np.dtype(result.dtype)
