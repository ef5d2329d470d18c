# SPDX-License-Identifier: Apache-2.0
"""Plain PNGs: FFmpeg gives Pillow's pixels, and leaves to Pillow all that is not plain or whole."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from robostream.assemble.sample import decode_plain_png

SHAPES = st.tuples(st.integers(1, 70), st.integers(1, 70))


def colours(height: int, width: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return an image that is smooth in parts, so that encoders use all their filters."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([3 * x, 2 * y, x + y], 2) + rng.integers(0, 4, (height, width, 3))
    noise = rng.integers(0, 256, (height, width, 3))
    return np.where((y < height // 2)[:, :, None], smooth, noise).astype(np.uint8)


def encode(image: Image.Image, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "png", **options)
    return buffer.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def png(
    lines: list[bytes],
    height: int,
    width: int,
    *,
    way: tuple[int, ...] = (8, 2, 0, 0, 0),
    piece: int = 1 << 20,
) -> bytes:
    """Return a PNG of lines that each begin with their filter, its content cut into pieces."""
    content = zlib.compress(b"".join(lines))
    pieces = [content[at : at + piece] for at in range(0, len(content), piece)]
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, *way))]
    parts += [(b"IDAT", one) for one in pieces]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in [*parts, (b"IEND", b"")])


@given(shape=SHAPES, seed=st.integers(0, 99), level=st.integers(0, 9), optimize=st.booleans())
def test_pixels_are_pillows(shape: tuple[int, int], seed: int, level: int, optimize: bool) -> None:
    """Pictures of any size come out as they went in, one after the other."""
    for number in range(2):
        pixels = colours(*shape, seed + number)
        encoded = encode(Image.fromarray(pixels), compress_level=level, optimize=optimize)
        found = decode_plain_png(encoded)

        assert found is not None
        np.testing.assert_array_equal(found, pixels)
        np.testing.assert_array_equal(found, np.asarray(Image.open(BytesIO(encoded))))


@given(filters=st.lists(st.integers(0, 4), min_size=1, max_size=30), piece=st.integers(1, 400))
def test_every_filter_and_any_pieces(filters: list[int], piece: int) -> None:
    """Whatever filters the lines have, and however they are cut into chunks."""
    rng = np.random.default_rng(len(filters))
    lines = [bytes([one]) + rng.integers(0, 256, 3 * 17, np.uint8).tobytes() for one in filters]
    encoded = png(lines, len(filters), 17, piece=piece)
    found = decode_plain_png(encoded)

    assert found is not None
    np.testing.assert_array_equal(found, np.asarray(Image.open(BytesIO(encoded))))


PLAIN = encode(Image.fromarray(colours(24, 40, 0)))


@given(at=st.integers(0, len(PLAIN) - 1), change=st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, change: int) -> None:
    """Wherever it is: no damaged image is taken for a whole one."""
    damaged = PLAIN[:at] + bytes([PLAIN[at] ^ change]) + PLAIN[at + 1 :]

    assert decode_plain_png(damaged) is None


@given(stop=st.integers(0, len(PLAIN) - 1), tail=st.sampled_from([b"", PLAIN[-12:]]))
def test_a_file_cut_short_is_noticed(stop: int, tail: bytes) -> None:
    """Also if what is left ends like a whole file."""
    assert decode_plain_png(PLAIN[: min(stop, len(PLAIN) - 13)] + tail) is None


def test_missing_rows_are_noticed() -> None:
    """A file that is in order, but for having fewer rows than it says, gives no half image."""
    lines = [bytes([0]) + bytes(range(60)) for _ in range(10)]

    assert decode_plain_png(png(lines, 10, 20)) is not None
    assert decode_plain_png(png(lines[:-1], 10, 20)) is None


def oriented() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(Image.fromarray(colours(8, 8, 0)), exif=exif)


def with_text() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", "anything")
    return encode(Image.fromarray(colours(8, 8, 0)), pnginfo=info)


RGB = Image.fromarray(colours(8, 8, 0))
LINES_16BIT = [bytes([0]) + bytes(range(48)) for _ in range(8)]
OTHERS = {
    "grey": encode(RGB.convert("L")),
    "grey and alpha": encode(RGB.convert("LA")),
    "alpha": encode(RGB.convert("RGBA")),
    "one bit": encode(RGB.convert("1")),
    "palette": encode(RGB.quantize(4)),
    "16-bit depth": encode(Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8))),
    "16-bit colour": png(LINES_16BIT, 8, 8, way=(16, 2, 0, 0, 0)),
    "interlaced": png(LINES_16BIT, 8, 8, way=(8, 2, 0, 0, 1)),
    "one colour is transparent": encode(RGB, transparency=(1, 2, 3)),
    "taken sideways": oriented(),
    "with a text": with_text(),
    "said to be huge": png([b"\0"], 1 << 13, 1 << 13),
    "no width": png([b"\0"], 1, 0),
    "nothing": b"",
    "another format": b"\xff\xd8\xff\xe0",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_are_left_to_pillow(kind: str) -> None:
    """Only what both decode alike is decoded here."""
    assert decode_plain_png(OTHERS[kind]) is None
