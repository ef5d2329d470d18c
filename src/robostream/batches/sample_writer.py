# SPDX-License-Identifier: Apache-2.0
"""Writes one process's parts of samples into batches: frames, stored images, rows, texts.

The user's image transform draws the same random numbers for a sample in any process. Torch is
imported only if there is a transform, because it would take most of a worker's memory.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    ArrayLayout,
    Arrays,
    BatchLayout,
    CameraLayout,
    ImageTransforms,
    OpenedDataset,
    SampleLayout,
    decode_images,
    fill_sample,
    plain_batches,
    window_targets,
    write_black,
    write_depth,
)
from robostream.batches.context import WorkerContext
from robostream.batches.source_reader import SourceReader
from robostream.decode import ClipUses
from robostream.errors import SelectionError, call_user
from robostream.plan import Schedule, stream

_AUGMENTATION = 0x41554731
# The texts of a batch, by key and by place in the batch.
Texts = dict[str, dict[int, Any]]


class SampleParts(NamedTuple):
    """A sample of a batch being built, and which parts of it this process writes.

    `rows` says whether its rows, `others` which cameras whose frames are not decoded from video;
    `source` reads its dataset.
    """

    step: int
    place: int
    source: SourceReader
    episode: int
    frame: int
    rows: bool
    others: list[int]


class WantedFrames(NamedTuple):
    """The frames of one clip that one sample needs, in the order of the window."""

    sample: SampleParts
    uses: ClipUses
    frames: list[int]


class SampleWriter:
    """Writes samples of a schedule into batches."""

    def __init__(self, worker: WorkerContext, schedule: Schedule) -> None:
        self._worker = worker
        self._schedule = schedule
        self._keys = [camera.key for camera in worker.layout.cameras]
        # Whether samples have no axis for the steps of a camera's window.
        self._are_bare = [len(c.shape) < len(c.stack) for c in worker.layout.cameras]

    def draw(self, want: WantedFrames, arrays: Arrays) -> None:
        """Write decoded frames of a clip to the place of a sample."""
        sample, uses, frames = want
        number = uses.clip.camera
        decoder, camera = self._worker.decoders[number], sample.source.cameras[number]
        assert camera is not None
        if camera.is_transformed:
            images = np.empty(camera.stack, camera.dtype)
            decoder.draw(uses, frames, images)
            self._transform(number, sample, images, arrays)
            return
        place = slice(sample.place, sample.place + 1) if self._are_bare[number] else sample.place
        out = arrays[self._keys[number]][place]
        if camera.coding is None:
            decoder.draw(uses, frames, out)
        else:
            codes = np.empty(camera.stack, np.uint16)
            decoder.draw(uses, frames, codes)
            write_depth(sample.source.layout.own, camera, codes, out)

    def _transform(
        self, number: int, sample: SampleParts, images: npt.NDArray[Any], arrays: Arrays
    ) -> None:
        source, plan = sample.source, self._schedule.plan
        transform = source.layout.dataset.spec.image_transforms
        camera = source.cameras[number]
        assert transform is not None
        assert camera is not None
        position = self._schedule.positions(sample.step)[sample.place]
        key = (plan.seed, plan.epoch, position, number)
        result = transform_images(transform, images.reshape(camera.shape), key=key)
        name, out = self._keys[number], arrays[self._keys[number]][sample.place]
        if result.shape != out.shape or result.dtype != out.dtype:
            raise SelectionError(
                f"image_transforms returned shape {result.shape} and type {result.dtype} for an "
                f"image of {name}, but {out.shape} and {out.dtype} for the first one. All samples "
                "of a batch must be alike: end the transform with a resize or a crop to one size."
            )
        out[...] = result

    def fill(self, sample: SampleParts, arrays: Arrays, texts: Texts) -> None:
        """Write the rows of a sample, and the images that are not decoded from videos."""
        if sample.rows:
            # Not `sample.source`: of many datasets, it may have closed its files meanwhile.
            source = self._worker.sources.of(sample.episode)
            rows = source.rows(sample.episode)
            found = fill_sample(source.layout, arrays, sample.place, rows, sample.frame)
            for key, text in found.items():
                texts.setdefault(key, {})[sample.place] = text
        for number in sample.others:
            self._fill_camera(number, sample, arrays)

    def _fill_camera(self, number: int, sample: SampleParts, arrays: Arrays) -> None:
        """Write the images of a camera that are stored in Parquet, or black ones if it has none."""
        source = self._worker.sources.of(sample.episode)
        camera = source.cameras[number]
        if camera is None:
            missing = self._worker.layout.cameras[number]
            write_black(arrays[missing.key][sample.place], missing)
            return
        rows = source.images(number, sample.episode)
        limits = source.layout.window_limits(sample.episode, sample.frame, rows.length)
        frames, _ = window_targets(source.offsets[number], sample.frame, *limits)
        place = slice(sample.place, sample.place + 1) if self._are_bare[number] else sample.place
        out: npt.NDArray[Any] = arrays[self._keys[number]][place]
        if camera.is_transformed:
            out = np.empty(camera.stack, camera.dtype)
        decode_images(source.layout.own, camera, rows, frames.tolist(), out)
        self._worker.count_images(len(frames))
        if camera.is_transformed:
            self._transform(number, sample, out, arrays)


def transform_images(
    transform: ImageTransforms, images: npt.NDArray[Any], *, key: tuple[int, int, int, int]
) -> npt.NDArray[Any]:
    """Return one camera's images of one sample, transformed.

    Seeds all generators. A process that draws from them elsewhere wraps calls in
    `preserve_generators`. All draws follow from the key: seed, epoch, position and camera.
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
    from robostream.assemble import probe_cameras  # workers do not need it

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
