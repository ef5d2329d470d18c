# SPDX-License-Identifier: Apache-2.0
"""One MP4 being encoded, frame by frame."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from robostream import config
from robostream.decode import one_thread
from robostream.errors import WriteError
from robostream.meta import DepthCoding, encode_depth
from robostream.write.encoder_options import VideoEncoderConfig, ffmpeg_options
from robostream.write.ordinary_threads import ordinary_threads

# A codec may store a frame before others that are shown earlier, but before at most so many.
_MAX_REORDER_FRAMES = 16
_CURE = (
    "Call clear_episode_buffer() and record this episode again; if it happens again, choose "
    "another codec."
)


@dataclass(frozen=True, slots=True)
class VideoSpec:
    """What a camera's videos have in common; `depth` is given for depth cameras only."""

    width: int
    height: int
    rate: Fraction
    options: VideoEncoderConfig
    depth: DepthCoding | None = None


@dataclass(frozen=True, slots=True)
class EncodedVideo:
    """A finished video of one episode.

    Attributes:
        reorder_frames: How many frames at most are stored ahead of one that is shown earlier.
        parameters: A digest of the codec's parameters; equal ones may share a file.
    """

    path: Path
    num_frames: int
    size_bytes: int
    reorder_frames: int
    parameters: str


class VideoEncoder:
    """An MP4 that grows frame by frame; frame k is shown at exactly k / fps."""

    def __init__(self, path: Path, spec: VideoSpec) -> None:
        config.quiet_encoders()
        self._path = path
        self._spec = spec
        self._reformatter = VideoReformatter()
        self._num_frames = 0
        self._shown: list[int] = []  # the frame numbers in the order they are stored
        self._container = av.open(str(path), "w", format="mp4")
        stream = self._container.add_stream(
            spec.options.codec, spec.rate, options=ffmpeg_options(spec.options)
        )
        assert isinstance(stream, av.VideoStream)
        self._stream = stream
        self._stream.width, self._stream.height = spec.width, spec.height
        self._stream.pix_fmt = spec.options.pix_fmt
        self._stream.codec_context.time_base = 1 / spec.rate

    def add(self, image: npt.NDArray[Any]) -> None:
        """Encode the next image: uint8 HWC, or HW depth as uint16 (mm) or float32 (m)."""
        picture = self._picture(image)
        picture.pts = self._num_frames
        picture.time_base = 1 / self._spec.rate
        self._num_frames += 1
        if self._num_frames > 1:
            self._mux(picture)
            return
        with ordinary_threads():  # the first picture opens the encoder
            self._mux(picture)

    def finish(self) -> EncodedVideo:
        """Encode what the codec still holds back, close the file and return the video."""
        self._mux(None)
        self._container.close()
        # The file must hold each image once. If one were missing, the pictures of all later
        # episodes in the joined file would no longer belong to their rows.
        if sorted(self._shown) != list(range(self._num_frames)):
            raise WriteError(
                f"{self._path.name}: the encoder {self._spec.options.codec} returned "
                f"{len(self._shown)} frames for {self._num_frames} images. {_CURE}"
            )
        late = max(place - shown for place, shown in enumerate(self._shown))
        parameters = self._stream.codec_context.extradata or b""
        return EncodedVideo(
            path=self._path,
            num_frames=self._num_frames,
            size_bytes=self._path.stat().st_size,
            reorder_frames=late,
            parameters=hashlib.blake2b(parameters, digest_size=8).hexdigest(),
        )

    def abandon(self) -> None:
        """Close the file without finishing it."""
        # Closing also writes an index. On a full disk that fails, but nobody needs the file.
        with contextlib.suppress(OSError, av.FFmpegError), contextlib.closing(self._container):
            if self._num_frames:
                self._stream.encode(None)  # SVT-AV1 complains if it is closed before its end

    def _picture(self, image: npt.NDArray[Any]) -> av.VideoFrame:
        if self._spec.depth is not None:
            codes = encode_depth(image, self._spec.depth)
            return av.VideoFrame.from_ndarray(codes, format=self._spec.options.pix_fmt)
        picture = av.VideoFrame.from_numpy_buffer(image, format="rgb24")
        return self._reformatter.reformat(
            picture, format=self._spec.options.pix_fmt, **one_thread()
        )

    def _mux(self, picture: av.VideoFrame | None) -> None:
        for packet in self._stream.encode(picture):
            if packet.pts is None:
                raise WriteError(
                    f"{self._path.name}: the encoder {self._spec.options.codec} returned a frame "
                    f"without a time. {_CURE}"
                )
            # We count the decode times ourselves: x265 sets none in an episode of a frame or two.
            packet.dts = len(self._shown) - _MAX_REORDER_FRAMES
            packet.duration = 1
            self._shown.append(packet.pts)
            self._container.mux(packet)


def frame_rate(fps: float) -> Fraction:
    """Return the frame rate as the fraction that videos are timed with. Pure."""
    return Fraction(fps).limit_denominator(1001)
