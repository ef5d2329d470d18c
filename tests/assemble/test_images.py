# SPDX-License-Identifier: Apache-2.0
"""Every kind of image a Parquet file may hold: LeRobot's values, or an error with a cure."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from PIL import __version__ as pillow_version

from robostream.assemble.sample import decode_image, write_image
from robostream.errors import DataFileError

HEIGHT, WIDTH = 3, 5
RNG = np.random.default_rng(0)
PILLOW = int(pillow_version.partition(".")[0])


def encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def image_of(mode: str) -> Image.Image:
    """Return an image of random values in a mode."""
    if mode in ("I", "F", "I;16"):
        dtype = {"I": np.int32, "F": np.float32, "I;16": np.uint16}[mode]
        return Image.fromarray(RNG.integers(0, 60_000, (HEIGHT, WIDTH)).astype(dtype))
    channels = len(Image.new(mode, (1, 1)).getbands())
    content = RNG.integers(0, 256, HEIGHT * WIDTH * channels, dtype=np.uint8).tobytes()
    if mode == "1":
        return Image.frombytes("L", (WIDTH, HEIGHT), content).convert("1")
    return Image.frombytes(mode, (WIDTH, HEIGHT), content)


def decode_values(encoded: bytes | None, *, channels: int | None = None) -> npt.NDArray[Any]:
    """Return an image as samples hold it."""
    pixels = decode_image(encoded, where="here", channels=channels)
    values = np.empty(pixels.shape, np.float32)
    write_image(pixels, values)
    return values


def as_lerobot(image: Image.Image) -> npt.NDArray[Any]:
    """Return what LeRobot makes of an image: torchvision's ToTensor, but for 16 bits."""
    if image.mode.startswith("I;16"):
        return np.array(image, np.float32)[None]
    dtype = {"I": np.int32, "F": np.float32}.get(image.mode, np.uint8)
    values = torch.from_numpy(np.array(image, dtype))
    if image.mode == "1":
        values = 255 * values
    planes = values.view(image.size[1], image.size[0], len(image.getbands())).permute(2, 0, 1)
    return (planes.float().div(255) if planes.dtype == torch.uint8 else planes).numpy()


@pytest.mark.parametrize(
    ("mode", "file_format"),
    [
        *((mode, "png") for mode in ("1", "L", "LA", "RGB", "RGBA", "I;16")),
        *((mode, "tiff") for mode in ("1", "L", "LA", "RGB", "RGBA", "I;16", "I", "F")),
    ],
)
def test_images_have_lerobots_values(mode: str, file_format: str) -> None:
    """Grey, colour and transparency are shares of 255, measurements are themselves."""
    encoded = encode(image_of(mode), file_format)
    wanted = as_lerobot(Image.open(BytesIO(encoded)))
    found = decode_values(encoded)

    np.testing.assert_array_equal(found, wanted)
    assert len(found) == {"LA": 2, "RGB": 3, "RGBA": 4}.get(mode, 1)


def test_black_and_white_is_0_and_1() -> None:
    """One bit per pixel is the darkest and the brightest there is."""
    image = image_of("1")
    wanted = np.asarray(image).astype(np.float32)[None]

    assert 0 < wanted.mean() < 1
    np.testing.assert_array_equal(decode_values(encode(image, "png")), wanted)


def png_of_16_bits(values: npt.NDArray[np.uint16]) -> bytes:
    """Return an RGB PNG of 16 bits per channel, which PIL reads but does not write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    height, width, _ = values.shape
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_colour_of_16_bits_is_read_with_8() -> None:
    """The upper 8 bits of each channel are its brightness, as PIL and so LeRobot read them."""
    values = RNG.integers(0, 65_536, (HEIGHT, WIDTH, 3)).astype(np.uint16)
    wanted = (values >> 8).astype(np.float32).transpose(2, 0, 1) / np.float32(255)

    np.testing.assert_array_equal(decode_values(png_of_16_bits(values)), wanted)


@pytest.mark.parametrize(
    ("mode", "file_format", "meaning"),
    [
        ("P", "png", "a palette"),
        ("P", "gif", "a palette"),
        ("PA", "tiff", "a palette"),
        ("CMYK", "jpeg", "printing inks"),
        ("CMYK", "tiff", "printing inks"),
        # Pillow before 13 cannot read the YCbCr TIFF that it writes.
        *([("YCbCr", "tiff", "colour differences")] if PILLOW >= 13 else []),
        ("LAB", "tiff", "colour differences"),
    ],
)
def test_values_that_are_no_colours_are_refused(mode: str, file_format: str, meaning: str) -> None:
    """The message names place, mode, meaning and cure; nothing is taken for grey or RGB."""
    image = image_of("RGB").quantize(4) if mode == "P" else image_of(mode)

    with pytest.raises(DataFileError, match=rf"^here: .*mode '{mode}' \(.*{meaning}.*convert\("):
        decode_values(encode(image, file_format))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["png", "jpeg"])
def test_an_image_taken_sideways_is_turned(file_format: str, orientation: int) -> None:
    """The orientation beside the pixels is followed, as LeRobot's reader does."""
    image = image_of("L").resize((40, 24), Image.Resampling.NEAREST)
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(image, file_format, exif=exif)
    plain = np.asarray(Image.open(BytesIO(encoded)))
    turns = [
        lambda a: a,
        lambda a: a[:, ::-1],
        lambda a: a[::-1, ::-1],
        lambda a: a[::-1],
        lambda a: a.T,
        lambda a: a.T[:, ::-1],
        lambda a: a.T[::-1, ::-1],
        lambda a: a.T[::-1],
    ]
    wanted = turns[orientation - 1](plain).astype(np.float32)[None] / np.float32(255)

    np.testing.assert_array_equal(decode_values(encoded), wanted)


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_an_image_of_other_channels_is_refused(mode: str) -> None:
    """Grey is not spread over three channels, and nothing is cut off."""
    encoded = encode(image_of(mode), "png")

    with pytest.raises(DataFileError, match=r"^here: .*has [14] channels, want the 3"):
        decode_values(encoded, channels=3)
    assert decode_values(encoded).shape[1:] == (HEIGHT, WIDTH)


@pytest.mark.parametrize("encoded", [None, b"", b"not an image"])
def test_what_is_no_image_is_refused(encoded: bytes | None) -> None:
    """A missing and a damaged image are told apart, each with its place."""
    with pytest.raises(DataFileError, match=r"^here: the image (is missing|cannot be decoded)"):
        decode_values(encoded)


@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("file_format", ["png", "tiff"])
def test_an_image_cut_short_is_refused(file_format: str) -> None:
    """Half a file gives no half image."""
    encoded = encode(image_of("RGB"), file_format)

    with pytest.raises(DataFileError, match=r"^here: the image cannot be decoded .*is damaged"):
        decode_values(encoded[: len(encoded) * 2 // 3])
