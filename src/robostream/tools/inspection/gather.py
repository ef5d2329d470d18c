# SPDX-License-Identifier: Apache-2.0
"""Reads what a page or a contact sheet shows: evenly spaced frames, and the rows of one episode."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.assemble import CameraReader, OpenedDataset, RowReader
from robostream.errors import DatasetError, SelectionError, StorageError
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, NO_STATS_DTYPES, LeRobotDatasetMetadata
from robostream.storage import parse_repo_url
from robostream.tools.inspection.contact_sheet import (
    Cell,
    draw_sheet,
    draw_thumbnails,
    spread_frames,
)

logger = logging.getLogger(__name__)

# Thumbnails of an episode and of the dataset; a page that is narrow shows a third of the first.
NUM_FRAMES = 9
_EPISODES = 12
_WIDTH = 224
# Features with more numbers a frame are no curves.
_MOST_NUMBERS = 256
_FIRST = ("action", "observation.state")


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """What is shown of one episode.

    Attributes:
        episode: The episode.
        length: Its frames.
        tasks: Its tasks.
        frames: The frames of the thumbnails.
        strips: Thumbnails by camera, or why they cannot be shown.
        curves: Numeric columns by feature, as (frames, numbers); the most important first.
    """

    episode: int
    length: int
    tasks: list[str]
    frames: list[int]
    strips: dict[str, list[Image.Image] | str]
    curves: dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class DatasetView:
    """What is shown of the dataset besides one episode.

    Attributes:
        camera: The camera of the overview; None without cameras.
        overview: The middle frame of some episodes.
    """

    camera: str | None
    overview: list[Cell]


def view_episode(dataset: OpenedDataset, episode: int) -> EpisodeView:
    """Return what is shown of an episode. Decodes only the frames of the thumbnails."""
    meta = dataset.meta
    if not 0 <= episode < meta.total_episodes:
        raise SelectionError(
            f"there is no episode {episode}: {meta.repo_id} has {meta.total_episodes}, numbered "
            "from 0"
        )
    length = int(meta.episodes["length"][episode])
    frames = spread_frames(length, NUM_FRAMES)
    with CameraReader(dataset) as reader:
        strips = {key: _strip(reader, key, episode, frames) for key in dataset.spec.cameras}
    tasks, curves = tasks_of(meta, episode), _read_curves(dataset, episode)
    return EpisodeView(episode, length, tasks, frames, strips, curves)


def view_dataset(dataset: OpenedDataset) -> DatasetView:
    """Return what is shown of the dataset. Decodes one frame of some episodes, of one camera."""
    lengths = dataset.meta.episodes["length"]
    camera = next(iter(dataset.spec.cameras), None)
    overview = []
    with CameraReader(dataset) as reader:
        for episode in spread_frames(len(lengths), _EPISODES) if camera else ():
            assert camera is not None
            images = _strip(reader, camera, episode, spread_frames(int(lengths[episode]), 1))
            if not isinstance(images, str):
                overview.append(Cell(images[0], f"episode {episode}"))
    return DatasetView(camera, overview)


def tasks_of(meta: LeRobotDatasetMetadata, episode: int) -> list[str]:
    """Return the tasks that the episode table names; none if it names none."""
    tasks = meta.episodes[episode].get("tasks")
    return [str(task) for task in tasks] if isinstance(tasks, list) else []


def importance(key: str) -> int:
    """Return the rank of a feature on the page: action, state, the others."""
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def name_of(meta: LeRobotDatasetMetadata) -> str:
    """Return the name of a dataset: on the Hub, of its folder, or its address."""
    repo = parse_repo_url(meta.url_root)
    if repo is not None:
        return repo[0]
    return meta.root.absolute().name if isinstance(meta.root, Path) else meta.repo_id


def sheet_of(dataset: OpenedDataset, view: EpisodeView) -> Image.Image:
    """Return the contact sheet of an episode: a row for each camera."""
    seconds = [f"{frame / dataset.meta.fps:.1f} s" for frame in view.frames]
    rows = []
    for key, images in view.strips.items():
        if isinstance(images, str):
            raise DatasetError(images)
        rows.append((key, [Cell(*pair) for pair in zip(images, seconds, strict=True)]))
    if not rows:
        raise SelectionError(f"{dataset.meta.repo_id} has no cameras, so there is no contact sheet")
    title = f"{name_of(dataset.meta)}, episode {view.episode}: {', '.join(view.tasks)}"
    return draw_sheet(title.rstrip(": "), rows)


def _strip(
    reader: CameraReader, key: str, episode: int, frames: list[int]
) -> list[Image.Image] | str:
    """Return the thumbnails of frames, or the error of a file that cannot be read."""
    try:
        return draw_thumbnails(reader.read(key, episode, frames), width=_WIDTH)
    except (DatasetError, StorageError) as error:
        logger.warning("%s, episode %d is not shown: %s", key, episode, error)
        return f"{key}, episode {episode}: {error}"


def _read_curves(dataset: OpenedDataset, episode: int) -> dict[str, npt.NDArray[Any]]:
    features = dataset.meta.info.features
    keys = [
        key
        for key, entry in features.items()
        if entry["dtype"] not in (*CAMERA_DTYPES, *NO_STATS_DTYPES)
        and key not in DEFAULT_FEATURES
        and np.prod(entry["shape"]) <= _MOST_NUMBERS
    ]
    keys.sort(key=importance)
    with closing(RowReader(dataset, dataset.file_opener(), keys)) as reader:
        numbers = reader.read(episode).numbers
    return {key: numbers[key].reshape(len(numbers[key]), -1).astype(np.float64) for key in keys}
