# SPDX-License-Identifier: Apache-2.0
"""Pictures stored inside Parquet: PNG or JPEG (colour) and TIFF or 16-bit PNG (depth)."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from robostream.assemble.plain_png import decode_plain_png
from robostream.decode import Size, scale_values
from robostream.errors import DataFileError

Pixels = npt.NDArray[Any]

# PIL's modes whose values are brightness from 0 to 255 (of "1": 0 or 1), and those whose values
# are measurements. Whatever else there is would reach a policy as colours that it does not hold.
_BRIGHTNESS = ("1", "L", "LA", "RGB", "RGBA")
_MEASURED = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_MEANINGS = {
    "P": "a palette: its values are numbers of colours, not colours",
    "PA": "a palette: its values are numbers of colours, not colours",
    "CMYK": "printing inks",
    "YCbCr": "brightness and two colour differences",
    "LAB": "lightness and two colour differences",
    "HSV": "hue, saturation and brightness",
}
_UNREADABLE = (
    UnidentifiedImageError,
    Image.DecompressionBombError,
    OSError,
    SyntaxError,
    ValueError,
)


def decode_image(
    encoded: bytes | None, *, where: str, channels: int | None = None, size: Size | None = None
) -> Pixels:
    """Return (channels, height, width) as stored: uint8 is brightness, all else is measured.

    Args:
        encoded: The bytes of the file.
        where: The dataset, camera, episode and frame, for messages.
        channels: How many channels it must have; None for any number.
        size: What it is scaled to; None for its own size.
    """
    mode, values = _open(encoded, where)
    if mode not in _BRIGHTNESS and mode not in _MEASURED:
        meaning = _MEANINGS.get(mode, "no kind of picture a camera makes")
        raise DataFileError(
            f"{where}: the picture has PIL's mode {mode!r} ({meaning}); want grey, RGB, RGBA or "
            "depth. Convert it with PIL's image.convert('RGB') and store it again."
        )
    if mode == "1":
        values = values.astype(np.uint8) * np.uint8(255)
    planes = values[:, :, None] if values.ndim == 2 else values
    pixels = np.ascontiguousarray(planes.transpose(2, 0, 1))
    if channels not in (None, len(pixels)):
        raise DataFileError(
            f"{where}: the picture has {len(pixels)} channels, want the {channels} that info.json "
            "declares. Store it again as declared, or correct the shape in info.json."
        )
    return pixels if size is None else scale_values(pixels, size)


def write_image(pixels: Pixels, out: npt.NDArray[np.float32]) -> None:
    """Write a picture as samples hold it: colour from 0 to 1, depth in its recorded unit.

    The values are those LeRobot's reader gives; see docs/format.md for each kind of picture.
    """
    if pixels.dtype == np.uint8:
        # float32 division, as LeRobot does it: multiplying by 1/255 differs in the last bit.
        np.divide(pixels, np.float32(255), out=out)
    else:
        out[:] = pixels


def _open(encoded: bytes | None, where: str) -> tuple[str, Pixels]:
    """Return PIL's mode of a picture and its values, the right way up."""
    if not encoded:
        raise DataFileError(
            f"{where}: the picture is missing from the file (only a path was stored). Record it "
            "again with the picture's bytes embedded."
        )
    plain = decode_plain_png(encoded)
    if plain is not None:
        return "RGB", plain
    try:
        with Image.open(BytesIO(encoded)) as image:
            image.load()
            return image.mode, np.asarray(_upright(image))
    except _UNREADABLE as error:
        raise DataFileError(
            f"{where}: the picture cannot be decoded ({error}); its {len(encoded)} bytes start "
            f"with {encoded[:8]!r}. The file is damaged."
        ) from error


def _upright(image: Image.Image) -> Image.Image:
    # A camera that was held sideways says so beside the pixels; LeRobot's reader turns them too.
    if image.getexif().get(ExifTags.Base.Orientation) is None:
        return image
    return ImageOps.exif_transpose(image)
