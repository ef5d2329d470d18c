# SPDX-License-Identifier: Apache-2.0
"""The user's image transform: it draws the same random numbers for a sample in any process.

Torch is imported only if there is a transform, because it would take most of a worker's memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    ArrayLayout,
    CameraLayout,
    ImageTransforms,
    OpenedDataset,
    SampleLayout,
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
def preserve_generators(transform: ImageTransforms | None) -> Iterator[None]:
    """Restore the state of all random generators after this block.

    Saving and restoring them takes ten times as long as seeding them: use one block for many
    images. Does nothing without a transform.
    """
    if transform is None:
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


def probe_layout(dataset: OpenedDataset) -> SampleLayout:
    """Return how samples lie in a batch. Opens videos.

    Frames have the size of those in the first selected episode. The user's transform is tried on
    black frames.
    """
    layout = SampleLayout(dataset, probed=probe_cameras(dataset))
    transform = dataset.spec.image_transforms
    if transform is None:
        return layout
    found = {
        camera.key: _try_transform(transform, camera, number)
        for number, camera in enumerate(layout.cameras)
        if camera.is_transformed
    }
    return layout.after_transform(found)


def _try_transform(transform: ImageTransforms, camera: CameraLayout, number: int) -> ArrayLayout:
    black = np.zeros(camera.shape, camera.dtype)
    try:
        with preserve_generators(transform):
            result = transform_images(transform, black, key=(0, 0, 0, number))
    except SelectionError:
        raise
    except Exception as error:
        raise SelectionError(
            f"image_transforms failed on a black frame of {camera.key}, shape {camera.shape}, type "
            f"{black.dtype}: {type(error).__name__}: {error}"
        ) from error
    return result.shape, result.dtype
