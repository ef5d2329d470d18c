# SPDX-License-Identifier: Apache-2.0
"""Writes one sample into a batch: numbers, pad masks, texts, and images stored in Parquet.

Map-style reading and streaming call the same functions, so their values agree.

Recorders usually store plain PNGs: 8-bit RGB without extra chunks. FFmpeg decodes them to Pillow's
pixels in two thirds of Pillow's time. Pillow decodes every other kind, and every image with
something wrong, so that values and errors do not depend on the decoder.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import numpy.typing as npt

from robostream.assemble.columns import parse_tool_calls
from robostream.assemble.layout import CameraLayout, SampleLayout, SourceLayout
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import EpisodeRows
from robostream.assemble.spec import Offsets, window_targets
from robostream.decode import (
    Size,
    describe_size_mismatch,
    new_packet,
    scale_values,
    write_black_yuv,
)
from robostream.errors import DataFileError, MetadataError
from robostream.meta import decode_depth

if TYPE_CHECKING:
    from robostream.assemble.schema import Placement

Arrays = Mapping[str, npt.NDArray[Any]]
Pixels = npt.NDArray[Any]

_MM_PER_M = np.float32(1000)
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


def fill_row(
    layout: SampleLayout,
    arrays: Arrays,
    place: int,
    rows: EpisodeRows,
    frame: int,
    limits: tuple[int, int],
    placement: Placement | None = None,
) -> None:
    """Write the numbers and masks of one sample to a place of a batch.

    Windows are clamped to the frames [first, stop) of `limits`. In a mixture, `placement` says
    where the values go.
    """
    targets: dict[str, Offsets] = {}
    for offsets, keys in layout.windows:
        frames, is_pad = window_targets(offsets, frame, *limits)
        for key in keys:
            targets[key] = frames
            arrays[f"{key}_is_pad" if placement is None else placement.pads[key]][place] = is_pad
    numbers = rows.numbers
    if placement is None:
        for key, column in numbers.items():
            arrays[key][place] = column[targets.get(key, frame)]
        return
    for key, value in placement.fixed:
        arrays[key][place] = value
    for key, common in placement.copied:
        arrays[common][place] = numbers[key][targets.get(key, frame)]
    for changed in placement.changed:
        values = numbers[changed.own][targets.get(changed.own, frame)]
        if changed.own in placement.scales:
            scale, shift = placement.scales[changed.own]
            values = values * scale + shift
        changed.write(values, arrays[changed.common][place, ...])
    arrays["task_index"][place] = placement.tasks[int(numbers["task_index"][frame])]


def read_texts(layout: SampleLayout, rows: EpisodeRows, frame: int) -> dict[str, Any]:
    """Return the texts of one sample and its task; raise if the dataset has no such task."""
    meta = layout.dataset.meta
    found: dict[str, Any] = {}
    for key in layout.texts:
        if key == "task":
            tasks, task_index = layout.tasks, int(rows.numbers["task_index"][frame])
            if not 0 <= task_index < len(tasks):
                raise MetadataError(
                    f"{meta.root}/{meta.info.tasks_path}: a frame has task_index "
                    f"{task_index}, but there are only {len(tasks)} tasks. Copy meta/ again."
                )
            found[key] = tasks[task_index]
        else:
            value = rows.object_at(key, frame)
            is_language = meta.features[key]["dtype"] == "language"
            found[key] = parse_tool_calls(value) if is_language else value
    return found


def decode_images(
    layout: SampleLayout,
    camera: CameraLayout,
    rows: EpisodeRows,
    frames: list[int],
    out: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    """Return a camera's images from Parquet as (steps, channels, height, width).

    They are written to `out`, whose size they must have; without it, the first decides on the size.
    """
    dataset, channels = layout.dataset, camera.stack[1]
    for slot, frame in enumerate(frames):
        pixels = decode_stored(dataset, rows, camera.key, frame, channels, camera.resize)
        if out is None:
            out = np.empty((len(frames), *pixels.shape), np.float32)
        if pixels.shape != out.shape[1:]:
            path = dataset.meta.get_data_file_path(rows.episode).as_posix()
            found, others = (pixels.shape[2], pixels.shape[1]), (out.shape[3], out.shape[2])
            raise DataFileError(
                f"{dataset.files.describe(path)}: {camera.key}, episode {rows.episode}, "
                f"frame {frame}: {describe_size_mismatch(found, others)}"
            )
        write_image(pixels, out[slot])
        recorded = camera.recorded_unit
        if recorded not in (None, dataset.spec.depth_output_unit):
            (np.multiply if recorded == "m" else np.divide)(out[slot], _MM_PER_M, out=out[slot])
    assert out is not None, "a sample has at least one frame"
    return out


def decode_stored(
    dataset: OpenedDataset,
    rows: EpisodeRows,
    key: str,
    frame: int,
    channels: int,
    size: Size | None = None,
) -> Pixels:
    """Return one image of a camera from Parquet; see `decode_image`."""
    where = f"{dataset.files.url}: {key}, episode {rows.episode}, frame {frame}"
    return decode_image(rows.object_at(key, frame), where=where, channels=channels, size=size)


def write_black(out: npt.NDArray[Any], camera: CameraLayout) -> None:
    """Write black images, or distances of 0, for a camera that a dataset does not have."""
    if camera.yuv_size is None:
        out[...] = 0
    else:
        write_black_yuv(out, camera.yuv_size)


def write_depth(
    layout: SampleLayout, camera: CameraLayout, codes: npt.NDArray[Any], out: npt.NDArray[Any]
) -> None:
    """Write the distances that the codes of a depth video stand for."""
    assert camera.coding is not None
    out[:] = decode_depth(codes, camera.coding, layout.dataset.spec.depth_output_unit)


def fill_sample(
    layout: SourceLayout, arrays: Arrays, place: int, rows: EpisodeRows, frame: int
) -> dict[str, Any]:
    """Write the numbers and masks of one sample to a place of a batch; return its texts."""
    own, placement = layout.own, layout.placement
    limits = layout.window_limits(rows.episode + layout.first_episode, frame, rows.length)
    texts = read_texts(own, rows, frame)
    fill_row(own, arrays, place, rows, frame, limits, placement)
    return texts if placement is None else {c: texts[key] for c, key in placement.texts.items()}


def decode_image(
    encoded: bytes | None, *, where: str, channels: int | None = None, size: Size | None = None
) -> Pixels:
    """Return (channels, height, width) as stored: uint8 is brightness, all else is measured.

    An image has other `channels` only with an error, and is scaled to `size`; None is for any.
    `where` names the dataset, camera, episode and frame in messages.
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
