# SPDX-License-Identifier: Apache-2.0
"""Thumbnails of camera images, and contact sheets made of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from robostream.errors import WriteError
from robostream.storage import write_bytes_atomic

Pixels = npt.NDArray[Any]

_QUALITY = 82
# Distances from near to far, as red, green and blue.
_NEAR_TO_FAR = np.array([(255, 236, 130), (240, 128, 60), (160, 40, 110), (50, 20, 90), (8, 8, 24)])
_GAP, _MARGIN, _TEXT = 6, 16, 14
_PAPER, _INK, _SOFT = "#ffffff", "#16202c", "#5b6775"


class Cell(NamedTuple):
    """A thumbnail and the text below it."""

    image: Image.Image
    label: str


def spread_frames(length: int, count: int) -> list[int]:
    """Return the frames in the middle of `count` equal parts of an episode, fewer if short. Pure.

    If an episode has fewer frames than parts, each frame is one part.
    """
    parts = min(count, length)
    return [(2 * part + 1) * length // (2 * parts) for part in range(parts)]


def draw_thumbnails(images: Sequence[Pixels], *, width: int) -> list[Image.Image]:
    """Return small RGB images of a camera's images, depth in one range of colours for all."""
    if images and (images[0].dtype != np.uint8 or len(images[0]) == 1):
        images = _colour_depth(images)
    drawn = []
    for image in images:
        full = Image.fromarray(np.ascontiguousarray(np.moveaxis(image[:3], 0, -1)))
        height = max(1, round(full.height * width / full.width))
        drawn.append(full.resize((width, height), Image.Resampling.BOX))
    return drawn


def _colour_depth(images: Sequence[Pixels]) -> list[Pixels]:
    """Return distances as colours: light is near. Pure."""
    low, high = np.percentile(np.concatenate([image.ravel() for image in images]), (1, 99))
    stops = np.linspace(low, max(high, low + 1e-6), len(_NEAR_TO_FAR))
    return [
        np.stack([np.interp(image[0], stops, colour) for colour in _NEAR_TO_FAR.T]).astype(np.uint8)
        for image in images
    ]


def jpeg_url(image: Image.Image) -> str:
    """Return an image as a data URL for a page."""
    out = BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


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


def save_result(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    try:
        write_bytes_atomic(path, content)
    except OSError as error:
        raise WriteError(
            f"cannot write {path}: {error.strerror}. Choose another file, or free space."
        ) from error
