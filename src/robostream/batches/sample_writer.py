# SPDX-License-Identifier: Apache-2.0
"""Writes one process's parts of samples into batches: frames, stored images, rows, texts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    Arrays,
    decode_images_into,
    window_targets,
    write_black,
    write_depth,
)
from robostream.batches.augment import transform_images, write_transformed
from robostream.batches.context import WorkerContext
from robostream.batches.source_reader import SourceReader
from robostream.decode import ClipUses
from robostream.plan import Schedule

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
    """Writes samples of a schedule into batches.

    Args:
        worker: The open files and decoders of the process.
        schedule: What is delivered.
    """

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
        name = self._keys[number]
        write_transformed(result, arrays[name][sample.place], name)

    def fill(self, sample: SampleParts, arrays: Arrays, texts: Texts) -> None:
        """Write the rows of a sample, and the images that are not decoded from videos."""
        if sample.rows:
            # Not `sample.source`: of many datasets, it may have closed its files meanwhile.
            source = self._worker.sources.of(sample.episode)
            rows = source.rows(sample.episode)
            found = source.layout.fill(arrays, sample.place, rows, sample.frame)
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
        decode_images_into(source.layout.own, camera, rows, frames.tolist(), out)
        self._worker.count_images(len(frames))
        if camera.is_transformed:
            self._transform(number, sample, out, arrays)
