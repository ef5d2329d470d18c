# SPDX-License-Identifier: Apache-2.0
"""Plain PNG pictures, decoded by FFmpeg: Pillow's pixels in two thirds of Pillow's time.

Plain is how recorders store a camera: RGB of 8 bits, and no chunk but the picture's own. Every
other kind is left to Pillow, and so is a picture with anything wrong, so that what becomes of it
does not depend on who decodes.
"""

from __future__ import annotations

import zlib

import av
import numpy as np
import numpy.typing as npt

from robostream.decode import new_packet

_BEGIN = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
# 8 bits, RGB, and 0 for the ways to compress, to filter and to interlace.
_RGB_8BIT = bytes([8, 2, 0, 0, 0])
_END = b"\0\0\0\0IEND\xae\x42\x60\x82"
_AROUND_CONTENT = 12  # a chunk's length, name and checksum
# A file may claim any size. Pillow has a guard against those that claim too much.
_MOST_PIXELS = 1 << 24


def decode_plain_png(encoded: bytes) -> npt.NDArray[np.uint8] | None:
    """Return (height, width, 3); None if it is not a plain PNG, or not a whole one."""
    if not _is_plain(encoded):
        return None
    # FFmpeg refuses a picture that lacks rows only if the file does not say that it ends.
    packet = new_packet(memoryview(encoded)[: -len(_END)])
    # A new decoder for each: one that has decoded a picture may take the next for a change of it.
    decoder = av.CodecContext.create("png", "r")
    decoder.thread_count = 1
    try:
        (frame,) = decoder.decode(packet)
    except (av.FFmpegError, ValueError):
        return None
    (plane,) = frame.planes
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, plane.line_size)
    return rows[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)


def _is_plain(encoded: bytes) -> bool:
    """Return whether a file is a PNG of RGB with its picture alone, all checksums right."""
    is_rgb = encoded.startswith(_BEGIN) and encoded[24:29] == _RGB_8BIT
    if not is_rgb or not encoded.endswith(_END):
        return False
    width, height = (int.from_bytes(encoded[at : at + 4], "big") for at in (16, 20))
    end = len(encoded) - len(_END)
    at = _next_chunk(encoded, len(_BEGIN) - 8, b"IHDR")
    while 0 < at < end:
        at = _next_chunk(encoded, at, b"IDAT")
    return at == end and width * height <= _MOST_PIXELS


def _next_chunk(encoded: bytes, at: int, name: bytes) -> int:
    """Return where the chunk at `at` ends; 0 if it has another name or a wrong checksum."""
    end = at + _AROUND_CONTENT + int.from_bytes(encoded[at : at + 4], "big")
    checked = memoryview(encoded)[at + 4 : end - 4]
    checksum = int.from_bytes(encoded[end - 4 : end], "big")
    return end if checked[:4] == name and zlib.crc32(checked) == checksum else 0
