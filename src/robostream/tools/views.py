# SPDX-License-Identifier: Apache-2.0
"""What is shown of a dataset: thumbnails, contact sheets of them, and the curves of an episode."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from robostream.assemble import CameraReader, OpenedDataset, RowReader
from robostream.errors import DatasetError, SelectionError, StorageError
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, NO_STATS_DTYPES, LeRobotDatasetMetadata
from robostream.storage import parse_repo_url
from robostream.tools.staging import save_result

logger = logging.getLogger(__name__)

Pixels = npt.NDArray[Any]

# Thumbnails of an episode; a page that is narrow shows a third of them.
NUM_FRAMES = 9
_WIDTH = 224
# Distances from near to far, as red, green and blue.
_NEAR_TO_FAR = np.array([(255, 236, 130), (240, 128, 60), (160, 40, 110), (50, 20, 90), (8, 8, 24)])
_GAP, _MARGIN, _TEXT = 6, 16, 14
_PAPER, _INK, _SOFT = "#ffffff", "#16202c", "#5b6775"
# Features with more numbers a frame are no curves.
_MOST_NUMBERS = 256
_FIRST = ("action", "observation.state")


class Cell(NamedTuple):
    """A thumbnail and the text below it."""

    image: Image.Image
    label: str


def spread_frames(length: int, count: int) -> list[int]:
    """Return the frames in the middle of `count` equal parts of an episode, or all. Pure."""
    parts = min(count, length)
    return [(2 * part + 1) * length // (2 * parts) for part in range(parts)]


def draw_thumbnails(images: Sequence[Pixels], *, width: int) -> list[Image.Image]:
    """Return small RGB images; distances in one range of colours for all, where light is near."""
    if images and (images[0].dtype != np.uint8 or len(images[0]) == 1):
        low, high = np.percentile(np.concatenate([image.ravel() for image in images]), (1, 99))
        stops = np.linspace(low, max(high, low + 1e-6), len(_NEAR_TO_FAR))
        images = [
            np.stack([np.interp(image[0], stops, of) for of in _NEAR_TO_FAR.T]).astype(np.uint8)
            for image in images
        ]
    drawn = []
    for image in images:
        full = Image.fromarray(np.ascontiguousarray(np.moveaxis(image[:3], 0, -1)))
        height = max(1, round(full.height * width / full.width))
        drawn.append(full.resize((width, height), Image.Resampling.BOX))
    return drawn


def beside(images: Sequence[Image.Image]) -> Image.Image:
    """Return images side by side, aligned at the top."""
    width = sum(image.width for image in images) + 2 * (len(images) - 1)
    joined = Image.new("RGB", (width, max(image.height for image in images)), _PAPER)
    left = 0
    for image in images:
        joined.paste(image, (left, 0))
        left += image.width + 2
    return joined


def draw_sheet(title: str, rows: Sequence[tuple[str, Sequence[Cell]]]) -> Image.Image:
    """Return a contact sheet: a title, then rows of cells, each row with a text above it."""
    font, bold = (ImageFont.load_default(size) for size in (_TEXT, _TEXT + 6))
    heights = [max(cell.image.height for cell in cells) + 2 * _TEXT for _, cells in rows]
    widths = [sum(cell.image.width + _GAP for cell in cells) for _, cells in rows]
    width = max(*widths, 480) + 2 * _MARGIN - _GAP
    height = 3 * _MARGIN + _TEXT + sum(heights) + len(rows) * (2 * _TEXT + _GAP)
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), _cut(title, bold, width - 2 * _MARGIN), _INK, bold)
    top = 2 * _MARGIN + _TEXT + _GAP
    for (text, cells), row_height in zip(rows, heights, strict=True):
        draw.text((_MARGIN, top), _cut(text, font, width - 2 * _MARGIN), _INK, font)
        top, left = top + 2 * _TEXT - _GAP, _MARGIN
        for cell in cells:
            sheet.paste(cell.image, (left, top))
            draw.text((left, top + cell.image.height + 2), cell.label, _SOFT, font)
            left += cell.image.width + _GAP
        top += row_height + 2 * _GAP
    return sheet


def _cut(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Return a text that fits into a width, with an ellipsis where it is cut."""
    if font.getlength(text) <= width:
        return text
    stops = range(len(text), 0, -1)
    return next((t for s in stops if font.getlength(t := f"{text[:s].rstrip()}…") <= width), "")


def save_sheet(path: Path, sheet: Image.Image) -> None:
    """Write a contact sheet as PNG, whole or not at all."""
    out = BytesIO()
    sheet.save(out, "PNG")
    save_result(path, out.getvalue())


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """What is shown of one episode."""

    episode: int
    length: int
    tasks: list[str]
    frames: list[int]  # the frames of the thumbnails
    strips: dict[str, list[Image.Image] | str]  # thumbnails by camera, or why they cannot be shown
    curves: dict[str, npt.NDArray[Any]]  # (frames, numbers) by feature, important ones first


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
        strips = {key: read_strip(reader, key, episode, frames) for key in dataset.spec.cameras}
    tasks, curves = tasks_of(meta, episode), _read_curves(dataset, episode)
    return EpisodeView(episode, length, tasks, frames, strips, curves)


def tasks_of(meta: LeRobotDatasetMetadata, episode: int) -> list[str]:
    """Return the tasks that the episode table names; none if it names none."""
    tasks = meta.episodes[episode].get("tasks")
    return [str(task) for task in tasks] if isinstance(tasks, list) else []


def importance(key: str) -> int:
    """Return the rank of a feature on the page: action, state, the others."""
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def name_of(meta: LeRobotDatasetMetadata) -> str:
    """Return the name of a dataset: on the Hub, of its folder, or its address."""
    if repo := parse_repo_url(meta.url_root):
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


def read_strip(
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
