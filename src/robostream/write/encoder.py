# SPDX-License-Identifier: Apache-2.0
"""Encodes one MP4, frame by frame."""

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
from robostream.write.encoder_options import (
    VideoEncoderConfig,
    ffmpeg_options,
    normal_thread_priority,
)

# The most frames by which a codec may store a frame ahead of one that is shown earlier.
_MAX_REORDER_FRAMES = 16
_CURE = (
    "Call clear_episode_buffer() and record this episode again; if this repeats, choose another "
    "codec."
)


@dataclass(frozen=True, slots=True)
class VideoSpec:
    """The common properties of a camera's videos; `depth` is given for depth cameras only."""

    width: int
    height: int
    rate: Fraction
    options: VideoEncoderConfig
    depth: DepthCoding | None = None


@dataclass(frozen=True, slots=True)
class EncodedVideo:
    """A finished video of one episode.

    Attributes:
        reorder_frames: Most frames stored ahead of one that is shown earlier.
        parameters: A digest of the codec parameters; videos with equal ones can share a file.
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
        self._stored: list[int] = []  # the frame numbers in stored order
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
        frame = self._to_frame(image)
        frame.pts = self._num_frames
        frame.time_base = 1 / self._spec.rate
        self._num_frames += 1
        if self._num_frames > 1:
            self._mux(frame)
            return
        with normal_thread_priority():  # the first frame opens the encoder
            self._mux(frame)

    def finish(self) -> EncodedVideo:
        """Flush the codec, close the file and return the video."""
        self._mux(None)
        self._container.close()
        # A missing frame would shift the frames of all later episodes in the joined file.
        if sorted(self._stored) != list(range(self._num_frames)):
            raise WriteError(
                f"{self._path.name}: the encoder {self._spec.options.codec} returned "
                f"{len(self._stored)} frames for {self._num_frames} images. {_CURE}"
            )
        parameters = self._stream.codec_context.extradata or b""
        return EncodedVideo(
            path=self._path,
            num_frames=self._num_frames,
            size_bytes=self._path.stat().st_size,
            reorder_frames=max(index - frame for index, frame in enumerate(self._stored)),
            parameters=hashlib.blake2b(parameters, digest_size=8).hexdigest(),
        )

    def abandon(self) -> None:
        """Close the file without finishing it."""
        # Closing writes an index, which fails on a full disk; the file is not needed.
        with contextlib.suppress(OSError, av.FFmpegError), contextlib.closing(self._container):
            if self._num_frames:
                self._stream.encode(None)  # SVT-AV1 prints a warning if it is not flushed

    def _to_frame(self, image: npt.NDArray[Any]) -> av.VideoFrame:
        pix_fmt = self._spec.options.pix_fmt
        if self._spec.depth is not None:
            return av.VideoFrame.from_ndarray(encode_depth(image, self._spec.depth), format=pix_fmt)
        frame = av.VideoFrame.from_numpy_buffer(image, format="rgb24")
        return self._reformatter.reformat(frame, format=pix_fmt, **one_thread())

    def _mux(self, frame: av.VideoFrame | None) -> None:
        for packet in self._stream.encode(frame):
            if packet.pts is None:
                raise WriteError(
                    f"{self._path.name}: the encoder {self._spec.options.codec} returned a frame "
                    f"without a timestamp. {_CURE}"
                )
            # Counted here, because x265 sets no decode times in episodes of one or two frames.
            packet.dts = len(self._stored) - _MAX_REORDER_FRAMES
            packet.duration = 1
            self._stored.append(packet.pts)
            self._container.mux(packet)


def frame_rate(fps: float) -> Fraction:
    """Return the frame rate as the fraction that times videos. Pure."""
    return Fraction(fps).limit_denominator(1001)
