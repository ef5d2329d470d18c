# SPDX-License-Identifier: Apache-2.0
"""Images stored in Parquet: PNG or JPEG (colour), TIFF or 16-bit PNG (depth).

Recorders usually store plain PNGs: 8-bit RGB without extra chunks. FFmpeg decodes them to Pillow's
pixels in two thirds of Pillow's time. Pillow decodes every other kind, and every image with
something wrong, so that values and errors do not depend on the decoder.
"""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from robostream.decode import Size, new_packet, scale_values
from robostream.errors import DataFileError

Pixels = npt.NDArray[Any]

# PIL's modes whose values are brightness from 0 to 255 (of "1": 0 or 1), and those whose values
# are measurements. A policy would take the values of any other mode for colours.
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
_PNG_BEGIN = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
# 8 bits, RGB, and method 0 of compression, filter and interlacing.
_PNG_RGB_8BIT = bytes([8, 2, 0, 0, 0])
_PNG_END = b"\0\0\0\0IEND\xae\x42\x60\x82"
_PNG_CHUNK_OVERHEAD = 12  # a chunk's length, name and checksum
# A file may claim any size. Pillow refuses those that claim too much.
_MOST_PNG_PIXELS = 1 << 24


def decode_image(
    encoded: bytes | None, *, where: str, channels: int | None = None, size: Size | None = None
) -> Pixels:
    """Return (channels, height, width) as stored: uint8 is brightness, all else is measured.

    Args:
        encoded: The bytes of the file.
        where: The dataset, camera, episode and frame, for messages.
        channels: The number of channels it must have; None for any.
        size: The size it is scaled to; None for its own.
    """
    mode, values = _decode(encoded, where)
    if mode not in _BRIGHTNESS and mode not in _MEASURED:
        meaning = _MEANINGS.get(mode, "no kind of image a camera makes")
        raise DataFileError(
            f"{where}: the image has PIL's mode {mode!r} ({meaning}); want grey, RGB, RGBA or "
            "depth. Convert it with PIL's image.convert('RGB') and store it again."
        )
    if mode == "1":
        values = values.astype(np.uint8) * np.uint8(255)
    planes = values[:, :, None] if values.ndim == 2 else values
    pixels = np.ascontiguousarray(planes.transpose(2, 0, 1))
    if channels not in (None, len(pixels)):
        raise DataFileError(
            f"{where}: the image has {len(pixels)} channels, want the {channels} that info.json "
            "declares. Store it again as declared, or correct the shape in info.json."
        )
    return pixels if size is None else scale_values(pixels, size)


def write_image(pixels: Pixels, out: npt.NDArray[Any]) -> None:
    """Write an image as samples hold it: colour from 0 to 1 or as uint8, depth as recorded.

    The values equal those of LeRobot's reader; see docs/format.md for each kind of image.
    """
    if pixels.dtype == np.uint8 and out.dtype != np.uint8:
        # float32 division, as in LeRobot: multiplying by 1/255 differs in the last bit.
        np.divide(pixels, np.float32(255), out=out)
    else:
        out[:] = pixels


def _decode(encoded: bytes | None, where: str) -> tuple[str, Pixels]:
    """Return PIL's mode of an image and its values, rotated as its Exif tag says."""
    if not encoded:
        raise DataFileError(
            f"{where}: the image is missing from the file (only a path was stored). Record it "
            "again with the image's bytes embedded."
        )
    plain = decode_plain_png(encoded)
    if plain is not None:
        return "RGB", plain
    # Imported on demand, so that workers of datasets without such images start faster.
    from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(BytesIO(encoded)) as image:
            image.load()
            has_orientation = image.getexif().get(ExifTags.Base.Orientation) is not None
            upright = ImageOps.exif_transpose(image) if has_orientation else image
            return image.mode, np.asarray(upright)
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        why = "of no known format" if isinstance(error, UnidentifiedImageError) else error
        raise DataFileError(
            f"{where}: the image cannot be decoded ({why}); its {len(encoded)} bytes start "
            f"with {encoded[:8]!r}. The file is damaged."
        ) from error


def decode_plain_png(encoded: bytes) -> npt.NDArray[np.uint8] | None:
    """Return (height, width, 3); None unless it is a complete plain PNG."""
    if not _is_plain_png(encoded):
        return None
    # FFmpeg refuses an image that lacks rows only if the file does not say that it ends.
    packet = new_packet(memoryview(encoded)[: -len(_PNG_END)])
    # A new decoder for each: a used one may take the next image for an update of the last.
    decoder = av.CodecContext.create("png", "r")
    decoder.thread_count = 1
    try:
        (frame,) = decoder.decode(packet)
    except (av.FFmpegError, ValueError):
        return None
    (plane,) = frame.planes
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, plane.line_size)
    return rows[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)


def _is_plain_png(encoded: bytes) -> bool:
    """Return whether a file is an 8-bit RGB PNG of IDAT chunks only, all checksums right."""
    is_rgb = encoded.startswith(_PNG_BEGIN) and encoded[24:29] == _PNG_RGB_8BIT
    if not is_rgb or not encoded.endswith(_PNG_END):
        return False
    width, height = (int.from_bytes(encoded[at : at + 4], "big") for at in (16, 20))
    end = len(encoded) - len(_PNG_END)
    at = _end_of_chunk(encoded, len(_PNG_BEGIN) - 8, b"IHDR")
    while 0 < at < end:
        at = _end_of_chunk(encoded, at, b"IDAT")
    return at == end and width * height <= _MOST_PNG_PIXELS


def _end_of_chunk(encoded: bytes, at: int, name: bytes) -> int:
    """Return where the chunk at `at` ends; 0 if it has another name or a wrong checksum."""
    end = at + _PNG_CHUNK_OVERHEAD + int.from_bytes(encoded[at : at + 4], "big")
    checked = memoryview(encoded)[at + 4 : end - 4]
    checksum = int.from_bytes(encoded[end - 4 : end], "big")
    return end if checked[:4] == name and zlib.crc32(checked) == checksum else 0
