# SPDX-License-Identifier: Apache-2.0
"""Draws, packs and scales frames.

Colours are exactly those of FFmpeg's conversion to rgb24. For 8-bit 4:2:0, converting straight to
planes (gbrp) gives the same values, several times faster than rgb24 and a transpose, with two
exceptions found by comparing. If the width is no multiple of 16, FFmpeg before 9 leaves up to 8
columns at the right edge unwritten, so such frames are made wider first. If the height is odd, the
values are rounded differently, so such frames are converted to rgb24.

Brightness is scaled by FFmpeg's bilinear filter, which widens when a frame shrinks, as
`torch.nn.functional.interpolate(mode="bilinear", antialias=True)` does; rounded accurately, and the
same on every processor and with every PyAV. Each plane is scaled on its own, so colours need no
conversion and 4:2:0 stays 4:2:0, unless the new height is odd; then it is drawn as RGB first.
Depth takes the nearest value: averaging depth values would invent surfaces.

Frames that are drawn on a GPU are delivered as they were decoded: a packed 4:2:0 frame and a label,
one byte that says how its colours are coded. That is half as long as RGB, and takes no conversion.
The coefficients with which FFmpeg draws RGB are given here, so that others can draw the same: all
of its arithmetic is in integers, and follows from the luma weights of the standards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import Interpolation, VideoReformatter

from robostream.decode.ffmpeg import Ffmpeg, PlaneReader, is_proven
from robostream.decode.frames import (
    COLORSPACES,
    CPU,
    PLANAR_8BIT,
    DecodedFrame,
    FrameLayout,
    PackedFrame,
    frame_layout,
    frame_of_arrays,
    is_full_range,
    one_thread,
    plane_of,
    to_format,
    unpack,
)
from robostream.errors import VideoFileError

# (height, width), as torch's functions take it.
Size = tuple[int, int]
Values = npt.NDArray[Any]

_GBRP_WIDTH_MULTIPLE = 16
_WHITE = np.float32(255)
# Flags PyAV has no names for before 18: round accurately, the same on every processor.
_ACCURATE_RND, _BITEXACT = 1 << 18, 1 << 19
FILTER = int(Interpolation.BILINEAR) | _ACCURATE_RND | _BITEXACT
# Keeps frames aligned for vector instructions; the label is the first byte after the planes.
_LABEL_BYTES = 64
_FULL = 16
NUM_LABELS = 2 * _FULL

# Luma weights of red and blue by colour space; those not named are coded as BT.601.
_BT601 = (0.299, 0.114)
_WEIGHTS = {1: (0.2126, 0.0722), 4: (0.30, 0.11), 7: (0.212, 0.087), 9: (0.2627, 0.0593)}
# Coefficients are multiples of 1 / 2^13, for values times 8 that are then shifted by 16 bits.
_ONE = 1 << 13


class Renderer:
    """Draws, packs and scales frames. For one thread, because it reuses its scratch memory.

    Args:
        ffmpeg: If None, everything goes through PyAV and numpy; the images are the same.
        flags: Those of FFmpeg's scaler, to compare its filters.
    """

    def __init__(self, ffmpeg: Ffmpeg | None, flags: int = FILTER) -> None:
        self._readers = _Readers(ffmpeg)
        self._flags = flags
        # By old and new shape of a plane, because FFmpeg's tables are cached for each size.
        self._scalers: defaultdict[Any, VideoReformatter] = defaultdict(VideoReformatter)
        self._reformatter = VideoReformatter()
        self._wide: dict[FrameLayout, tuple[av.VideoFrame, list[Values]]] = {}
        self._colours: dict[FrameLayout, npt.NDArray[np.uint8]] = {}

    def draw(self, frame: DecodedFrame, out: Values, *, file: str) -> None:
        """Write a decoded frame into one slot of a batch, shaped (channels, height, width).

        A colour slot is uint8, or float32 in [0, 1]; a depth slot is uint16 codes.
        """
        _check_device(frame)
        frame.layout.check_slot(out.shape, out.dtype, file)
        self._draw(frame, out, file)

    def pack(self, frame: DecodedFrame, packed: PackedFrame) -> None:
        """Write a decoded frame into memory, its planes one after the other."""
        reader = self._readers[frame.layout]
        if reader is not None and frame.device == CPU:
            reader.pack(frame, packed)
            return
        _check_device(frame)
        for mine, plane in zip(unpack(packed).arrays(), frame.arrays(), strict=True):
            mine[:] = plane

    def pack_into(self, frame: DecodedFrame, out: Values) -> None:
        """Pack a decoded frame at the start of an array."""
        self.pack(frame, PackedFrame(out[: frame.layout.nbytes], out.ctypes.data, frame.layout))

    def write_yuv(self, content: Values, out: Values, *, label: int) -> None:
        """Write a packed frame and its label into a batch of YUV frames."""
        out[: len(content)] = content
        self.write_label(out, label)

    def write_label(self, out: Values, label: int) -> None:
        """Write the label of a packed YUV 4:2:0 frame."""
        label_place(out)[:] = label

    def draw_packed(self, packed: Sequence[PackedFrame], out: Values, *, file: str) -> None:
        """Write packed frames into a batch, (frames, channels, height, width)."""
        layout = packed[0].layout
        if len(packed) > 1 and len({frame.layout for frame in packed}) > 1:
            for place, frame in enumerate(packed):
                self.draw_packed([frame], out[place : place + 1], file=file)
            return
        reader = self._readers[layout]
        fits = out.shape[1:] == layout.shape and out.dtype == np.uint8 and out.flags.c_contiguous
        if fits and reader is not None:
            reader.write_packed(packed, out)
            return
        layout.check_slot(out.shape[1:], out.dtype, file)
        for frame, slot in zip(packed, out, strict=True):
            self._draw(unpack(frame), slot, file)

    def scale(self, frame: DecodedFrame, size: Size, *, file: str) -> DecodedFrame:
        """Return a frame at a size; the same frame if it has that size."""
        old = frame.layout
        if size == (old.height, old.width):
            return frame
        if old.kind in PLANAR_8BIT and size[0] % 2:
            colours = np.empty(old.shape, np.uint8)
            self.draw(frame, colours, file=file)
            old = frame_layout("rgb", old.width, old.height, 0, 0)
            frame = frame_of_arrays(old, colours)
        new = frame_layout(old.kind, size[1], size[0], old.colorspace, old.color_range)
        if new.kind == "depth":
            return frame_of_arrays(new, [_nearest(codes, size) for codes in frame.arrays()])
        planes = []
        for plane, (width, height) in zip(frame.arrays(), new.plane_sizes, strict=True):
            scaler = self._scalers[plane.shape, (height, width)]
            scaled = _scale_plane(scaler, plane, (height, width), self._flags)
            planes.append(plane_of(scaled))
        return DecodedFrame(new, tuple(planes))

    def _draw(self, frame: DecodedFrame, out: Values, file: str) -> None:
        """Draw a frame of any layout: the one place that knows all of them."""
        layout, reader = frame.layout, self._readers[frame.layout]
        if layout.kind == "depth":
            (out[0],) = frame.arrays()
        elif reader is None:
            if layout.kind in PLANAR_8BIT:
                frame = self._through_pyav(frame, file)
            for plane, channel in zip(frame.arrays(), out, strict=True):
                _write_colours(plane, channel)
        elif out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write(frame, out)
        else:
            if layout not in self._colours:
                self._colours[layout] = np.empty(out.shape, np.uint8)
            reader.write(frame, self._colours[layout])
            _write_colours(self._colours[layout], out)

    def _through_pyav(self, frame: DecodedFrame, file: str) -> DecodedFrame:
        """Return a 4:2:0 frame as RGB, by way of a frame wide enough for the fast conversion."""
        layout = frame.layout
        if layout not in self._wide:
            width = -(-layout.width // _GBRP_WIDTH_MULTIPLE) * _GBRP_WIDTH_MULTIPLE
            wide = av.VideoFrame(width, layout.height, layout.kind)
            wide.colorspace, wide.color_range = layout.colorspace, layout.color_range
            left = DecodedFrame(layout, tuple(map(plane_of, wide.planes)))
            self._wide[layout] = wide, left.arrays()
        wide, arrays = self._wide[layout]
        for mine, plane in zip(arrays, frame.arrays(), strict=True):
            mine[:] = plane
        green, blue, red = to_format(self._reformatter, wide, "gbrp", file).planes
        colours = frame_layout("rgb", layout.width, layout.height, 0, 0)
        return DecodedFrame(colours, tuple(map(plane_of, (red, green, blue))))


class _Readers(dict[FrameLayout, PlaneReader | None]):
    """FFmpeg's readers by layout; None where PyAV draws. A missing one is opened."""

    def __init__(self, ffmpeg: Ffmpeg | None) -> None:
        super().__init__()
        self._ffmpeg = ffmpeg

    def __missing__(self, layout: FrameLayout) -> PlaneReader | None:
        reader = None
        if (
            self._ffmpeg is not None
            and layout.kind in PLANAR_8BIT
            and layout.width % _GBRP_WIDTH_MULTIPLE == 0
        ):
            size, colours = (layout.width, layout.height), (layout.colorspace, layout.color_range)
            if is_proven(self._ffmpeg, layout.kind, layout.width, colours):
                reader = PlaneReader(self._ffmpeg, layout.kind, size, colours)
        self[layout] = reader
        return reader


def _write_colours(colours: npt.NDArray[np.uint8], out: Values) -> None:
    if out.dtype == np.float32:
        # A true division: multiplying by 1/255 differs in the last bit. NumPy before 2 would take
        # float16 for bytes and this number.
        np.divide(colours, _WHITE, out=out, dtype=np.float32)
    else:
        out[:] = colours


def _check_device(frame: DecodedFrame) -> None:
    if frame.device != CPU:
        raise ValueError(f"frames are drawn on the CPU; this one lies on {frame.device}")


def _scale_plane(
    reformatter: VideoReformatter, plane: npt.NDArray[np.uint8], size: Size, flags: int
) -> VideoPlane:
    """Return a plane (rows of contiguous values) at a size, in FFmpeg's memory."""
    frame = av.VideoFrame.from_numpy_buffer(plane, format="gray")
    scaled = reformatter.reformat(
        frame, width=size[1], height=size[0], interpolation=flags, **one_thread()
    )
    return scaled.planes[0]


def scale_values(values: Values, size: Size) -> Values:
    """Return (channels, height, width) at a size: uint8 is brightness, other types are measured."""
    if values.shape[1:] == size:
        return values
    if values.dtype != np.uint8:
        return _nearest(values, size)
    reformatter = VideoReformatter()
    scaled = np.empty((len(values), *size), np.uint8)
    for channel, plane in zip(scaled, values, strict=True):
        rows = np.frombuffer(memoryview(_scale_plane(reformatter, plane, size, FILTER)), np.uint8)
        channel[:] = rows.reshape(size[0], -1)[:, : size[1]]
    return scaled


def _nearest(values: Values, size: Size) -> Values:
    """Return the values nearest to the middle of each place."""
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new)
        for new, old in zip(size, values.shape[-2:], strict=True)
    )
    return values[..., rows[:, None], columns]


class Drawing(NamedTuple):
    """How the values of one colour coding become RGB; see device/upload.py."""

    black: int
    y: int
    v_red: int
    u_green: int
    v_green: int
    u_blue: int


def yuv_bytes(width: int, height: int) -> int:
    """Return the bytes of a frame and its label. Pure."""
    return frame_layout("yuv420p", width, height, 0, 0).nbytes + _LABEL_BYTES


def label_of(layout: FrameLayout, size: tuple[int, int], file: str) -> int:
    """Return the label of frames of a layout.

    Raises VideoFileError if they have another (height, width), or cannot be drawn.
    """
    layout.check_slot((3, *size), np.uint8, file)
    if layout.kind not in PLANAR_8BIT:
        raise VideoFileError(
            f"{file}: the frames are not 8-bit 4:2:0, as those of this camera's first episode "
            "are, so they cannot be drawn on the device with them. Choose episodes of one format, "
            "or leave out `device` and copy batches to it."
        )
    if layout.colorspace not in COLORSPACES:
        raise VideoFileError(
            f"{file}: colour space {layout.colorspace} cannot be converted to RGB. Re-encode the "
            "file."
        )
    is_full = is_full_range(layout.kind, layout.color_range)
    return layout.colorspace | (_FULL if is_full else 0)


def label_place(frames: Any) -> Any:
    """Return the labels of frames, arrays or tensors, along the last axis."""
    return frames[..., -_LABEL_BYTES : 1 - _LABEL_BYTES]


def open_yuv(frames: Any, size: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Return labels (count,), y (count, rows, columns), and u and v (count, 2, rows, columns).

    Of frames (count, bytes), arrays or tensors; copies nothing.
    """
    (height, width), count = size, len(frames)
    rows, columns = (height + 1) // 2, (width + 1) // 2
    luma, end = height * width, height * width + 2 * rows * columns
    y = frames[:, :luma].reshape(count, height, width)
    chroma = frames[:, luma:end].reshape(count, 2, rows, columns)
    return label_place(frames)[:, 0], y, chroma


def write_black_yuv(frames: Any, size: tuple[int, int]) -> None:
    """Write black frames along the last axis of an array."""
    height, width = size
    frames[...] = 128  # no colour
    frames[..., : height * width] = 0
    label_place(frames)[...] = _FULL | 1  # full range, in which 0 is black


def drawing_of(label: int) -> Drawing:
    """Return the coefficients with which FFmpeg draws frames of a label. Pure."""
    red, blue = _WEIGHTS.get(label % _FULL, _BT601)
    green = 1 - red - blue
    colours = (
        2 * (1 - red),
        -2 * (1 - blue) * blue / green,
        -2 * (1 - red) * red / green,
        2 * (1 - blue),
    )
    # FFmpeg begins with the numbers of limited range, in 16 bits, also for full range.
    limited = [round(colour * 255 / 224 * (1 << 16)) for colour in colours]
    if label >= _FULL:
        return Drawing(0, _ONE, *(_rounded(int(number * 224 / 255)) for number in limited))
    return Drawing(16 * 8, _rounded((1 << 16) * 255 // 219), *map(_rounded, limited))


def _rounded(number: int) -> int:
    """Return a number of 16 binary places, rounded to 13."""
    return (number * _ONE + (1 << 15)) >> 16
