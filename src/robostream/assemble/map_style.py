# SPDX-License-Identifier: Apache-2.0
"""Random access to samples by number, with what was opened kept within budgets."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from robostream import config
from robostream.assemble.batch import BatchWriter, Sample
from robostream.assemble.episode import Episode, index_folder, load_episode
from robostream.assemble.layout import SampleLayout
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.assemble.selection import FrameSelection
from robostream.assemble.spec import ImageTransforms, SampleSpec, check_transforms
from robostream.decode import Backend, FrameEngine, TorchcodecBackend
from robostream.errors import SelectionError
from robostream.fetch import open_source
from robostream.meta import LeRobotDatasetMetadata

logger = logging.getLogger(__name__)


class MapReader:
    """Serves samples by item number; safe to pickle and to carry over a fork.

    Whatever is held open (files, decoders, frames, rows) belongs to one process and is made anew in
    each: a forked worker must not share a decoder with its parent.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        selection: FrameSelection,
        spec: SampleSpec,
        *,
        row_cache_bytes: int,
        frame_cache_bytes: int,
        video_backend: str | None,
    ) -> None:
        self.meta = meta
        self.selection = selection
        self._layout = SampleLayout(meta, spec)
        self._row_cache_bytes = row_cache_bytes
        self._frame_cache_bytes = frame_cache_bytes
        self._video_backend = _check_backend(video_backend)
        self._open: _Open | None = None

    @property
    def spec(self) -> SampleSpec:
        """What a sample holds."""
        return self._layout.spec

    def item(self, number: int) -> dict[str, Any]:
        """Return the sample of an item."""
        episode, frame = self.selection.locate(number)
        writer = BatchWriter(1, self._layout, allocate=np.empty)
        writer.fill([Sample(0, self.episode(episode), frame, position=0)], self.engine)
        return writer.item()

    def row(self, number: int) -> dict[str, Any]:
        """Return the row of an item alone: tensors and texts, no videos, no windows."""
        episode, frame = self.selection.locate(number)
        rows = self._rows(episode)
        numbers = {k: torch.from_numpy(np.array(c[frame])) for k, c in rows.numbers.items()}
        return numbers | {key: rows.object_at(key, frame) for key in rows.objects}

    def columns(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return whole columns over all selected frames: tensors, or lists of texts."""
        parts = [self._rows(int(episode)) for episode in self.selection.episodes]
        result: dict[str, Any] = {}
        for key in keys:
            if key in parts[0].numbers:
                result[key] = torch.from_numpy(np.concatenate([p.numbers[key] for p in parts]))
            else:
                result[key] = [value for p in parts for value in p.objects[key].to_pylist()]
        return result

    def set_image_transforms(self, image_transforms: ImageTransforms | None) -> None:
        """Replace what is applied to each camera of a sample."""
        check_transforms(image_transforms)
        spec = dataclasses.replace(self.spec, image_transforms=image_transforms)
        self._layout = SampleLayout(self.meta, spec)

    def episode(self, episode: int) -> Episode:
        """Return an episode at hand, from the cache or from its files."""
        opened = self._opened()
        if episode in opened.episodes:
            opened.episodes.move_to_end(episode)
            return opened.episodes[episode]
        loaded = load_episode(
            episode, meta=self.meta, reader=opened.reader, engine=opened.engine, spec=self.spec
        )
        opened.episodes[episode] = loaded
        opened.nbytes += loaded.nbytes
        while opened.nbytes > self._row_cache_bytes and len(opened.episodes) > 1:
            opened.nbytes -= opened.episodes.popitem(last=False)[1].nbytes
        return loaded

    @property
    def engine(self) -> FrameEngine:
        """The frame engine of this process."""
        return self._opened().engine

    def close(self) -> None:
        """Close what this process holds open; the next access opens it again."""
        if self._open is not None and self._open.process == os.getpid():
            self._open.engine.close()
            self._open.reader.close()
        self._open = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def _rows(self, episode: int) -> EpisodeRows:
        opened = self._opened()
        held = opened.episodes.get(episode)
        return held.rows if held is not None else opened.reader.read(episode)

    def _opened(self) -> _Open:
        if self._open is None or self._open.process != os.getpid():
            location = self.meta.location
            self._open = _Open(
                process=os.getpid(),
                engine=FrameEngine(
                    lambda file: open_source(location, file),
                    store_bytes=self._frame_cache_bytes,
                    max_files=config.VIDEO_DECODER_CACHE_SIZE,
                    backend=_open_backend(self._video_backend),
                    index_folder=index_folder(self.meta),
                ),
                reader=RowReader(self.meta, self.spec.columns),
            )
        return self._open


def _check_backend(name: str | None) -> str:
    if name == "video_reader":
        logger.warning("video_backend='video_reader' is an old name; 'pyav' is used")
        return "pyav"
    if name not in (None, "pyav", "torchcodec"):
        raise SelectionError(f"video_backend must be 'pyav' or 'torchcodec', got {name!r}")
    if name == "torchcodec":
        TorchcodecBackend()  # says now, not at the first picture, that it is not installed
    return name or "pyav"


def _open_backend(name: str) -> Backend | None:
    return TorchcodecBackend() if name == "torchcodec" else None


@dataclass(slots=True)
class _Open:
    """What one process holds open."""

    process: int
    engine: FrameEngine
    reader: RowReader
    episodes: OrderedDict[int, Episode] = field(default_factory=OrderedDict)
    nbytes: int = 0
