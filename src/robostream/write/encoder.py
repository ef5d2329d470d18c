# SPDX-License-Identifier: Apache-2.0
"""Encodes one camera's images of an episode: an MP4 or single images, and their statistics."""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import OutputContainer
from av.video.reformatter import VideoReformatter
from PIL import Image

from robostream import config
from robostream.decode import one_thread
from robostream.errors import WriteError
from robostream.meta import (
    COLOUR,
    DEPTH,
    DatasetInfo,
    DepthCoding,
    FeatureStats,
    encode_depth,
    image_shape,
    is_depth,
    sampled_frames,
)
from robostream.write.encoder_options import (
    DepthEncoderConfig,
    RecordingOptions,
    VideoEncoderConfig,
    ffmpeg_options,
    normal_thread_priority,
)
from robostream.write.frames import Pixels
from robostream.write.staging import part_path

# The most frames by which a codec may store a frame ahead of one that is shown earlier.
_MAX_REORDER_FRAMES = 16
_PNG_LEVEL = 6  # LeRobot's level for cameras stored as images
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
class EpisodeFile:
    """The rows, or a camera's video, of one episode."""

    path: Path
    size_bytes: int
    num_frames: int  # its rows, or the frames of the video, which may be more
    reorder_frames: int = 0  # most frames stored ahead of one that is shown earlier
    parameters: str = ""  # a digest of its schema or codec; files with equal ones can be joined


@dataclass(frozen=True, slots=True)
class CameraResult:
    """One camera's part of an episode: statistics, and a video or named, encoded images."""

    stats: FeatureStats
    video: EpisodeFile | None
    images: list[tuple[str, bytes]]


class VideoEncoder:
    """An MP4 that grows frame by frame; frame k is shown at exactly k / fps."""

    def __init__(self, path: Path, spec: VideoSpec) -> None:
        self._path = path
        self._spec = spec
        self._reformatter = VideoReformatter()
        self._num_frames = 0
        self._stored: list[int] = []  # the frame numbers in stored order
        self._container = av.open(str(path), "w", format="mp4")
        size = spec.width, spec.height
        self._stream = add_stream(self._container, spec.options, spec.rate, size)

    def add(self, image: Pixels) -> None:
        """Encode the next image: uint8 HWC, or HW depth as uint16 (mm) or float32 (m)."""
        pix_fmt, depth = self._spec.options.pix_fmt, self._spec.depth
        if depth is not None:
            frame = av.VideoFrame.from_ndarray(encode_depth(image, depth), format=pix_fmt)
        else:
            frame = av.VideoFrame.from_numpy_buffer(image, format="rgb24")
            frame = self._reformatter.reformat(frame, format=pix_fmt, **one_thread())
        frame.pts = self._num_frames
        frame.time_base = 1 / self._spec.rate
        self._num_frames += 1
        self._mux(frame)

    def finish(self) -> EpisodeFile:
        """Flush the codec, close the file and return the video."""
        self._mux(None)
        self._container.close()
        # A missing frame would shift the frames of all later episodes in the joined file.
        if sorted(self._stored) != list(range(self._num_frames)):
            raise WriteError(
                f"{self._path.name}: the encoder {self._spec.options.codec} returned "
                f"{len(self._stored)} frames for {self._num_frames} images. {_CURE}"
            )
        reorder_frames = max(index - frame for index, frame in enumerate(self._stored))
        parameters = digest(self._stream.codec_context.extradata or b"")
        size_bytes = self._path.stat().st_size
        return EpisodeFile(self._path, size_bytes, self._num_frames, reorder_frames, parameters)

    def abandon(self) -> None:
        """Close the file without finishing it."""
        # Closing writes an index, which fails on a full disk; the file is not needed.
        with contextlib.suppress(OSError, av.FFmpegError), contextlib.closing(self._container):
            if self._num_frames:
                self._stream.encode(None)  # SVT-AV1 prints a warning if it is not flushed

    def _mux(self, frame: av.VideoFrame | None) -> None:
        for packet in encode_frame(self._stream, frame):
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


class CameraEncoder:
    """Encodes and summarises one camera's images of one episode.

    Encoded images stay in memory until the episode is saved. Videos go to files in `folder`, and so
    do the summaries: those of an hour-long episode would fill the memory.
    """

    def __init__(
        self, key: str, folder: Path, info: DatasetInfo, options: RecordingOptions
    ) -> None:
        entry = info.features[key]
        self._summary = DEPTH if is_depth(entry) else COLOUR
        self._video: VideoEncoder | None = None
        if entry["dtype"] == "video":
            _, height, width = image_shape(entry)
            depth = options.depth_encoder
            chosen = (depth.video, depth.coding) if is_depth(entry) else (options.encoder, None)
            spec = VideoSpec(width, height, frame_rate(info.fps), *chosen)
            self._video = VideoEncoder(part_path(folder, key), spec)
        self._scratch = folder / f"{key}.scratch"
        self._summaries = self._scratch.open("wb")
        self._images: list[tuple[str, bytes]] = []
        self._num_frames = 0

    def add(self, image: Pixels) -> None:
        """Summarise and encode the next image."""
        self._summaries.write(self._summary.summarise(image).tobytes())
        if self._video is not None:
            self._video.add(image)
        else:
            self._images.append(_encode_image(image, self._num_frames))
        self._num_frames += 1

    def finish(self) -> CameraResult:
        """Finish the video and return the camera's part of the episode."""
        video = self._video.finish() if self._video is not None else None
        self._summaries.close()
        dtype = self._summary.dtype
        every = np.memmap(self._scratch, dtype.base, "r", shape=(self._num_frames, *dtype.shape))
        sampled = np.array(every[sampled_frames(self._num_frames)])
        del every
        self._scratch.unlink()
        return CameraResult(self._summary.stats(sampled), video, self._images)

    def abandon(self) -> None:
        """Close all files without a result."""
        with contextlib.suppress(OSError):  # flushing fails on a full disk
            self._summaries.close()
        if self._video is not None:
            self._video.abandon()


def add_stream(
    container: OutputContainer, options: VideoEncoderConfig, rate: Fraction, size: tuple[int, int]
) -> av.VideoStream:
    """Add an encoder for images of this width and height to an open file."""
    config.quiet_encoders()
    stream = container.add_stream(options.codec, rate, options=ffmpeg_options(options))
    assert isinstance(stream, av.VideoStream)
    stream.width, stream.height = size
    stream.pix_fmt = options.pix_fmt
    stream.codec_context.time_base = 1 / rate
    return stream


def encode_frame(
    stream: av.VideoStream, frame: av.VideoFrame | None
) -> list[av.Packet[av.VideoStream]]:
    """Return the packets that are finished after this frame; None flushes the encoder."""
    # The first frame opens the encoder.
    is_open = frame is None or stream.codec_context.is_open
    with contextlib.nullcontext() if is_open else normal_thread_priority():
        return stream.encode(frame)


def digest(parameters: bytes) -> str:
    """Return the digest by which `EpisodeFile` compares parameters. Pure."""
    return hashlib.blake2b(parameters, digest_size=8).hexdigest()


def frame_rate(fps: float) -> Fraction:
    """Return the frame rate as the fraction that times videos. Pure."""
    return Fraction(fps).limit_denominator(1001)


def video_info(
    path: Path, *, fps: float, encoder: VideoEncoderConfig | DepthEncoderConfig
) -> dict[str, Any]:
    """Return the `info` block in info.json of a camera whose first video is at `path`."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pix_fmt = stream.codec_context.pix_fmt or ""
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": stream.codec_context.codec.canonical_name,
            "video.pix_fmt": pix_fmt,
            "video.fps": int(fps),  # FFmpeg's estimate is wrong for one or two frames
            "video.channels": len(av.VideoFormat(pix_fmt).components),
            "has_audio": False,
            **encoder.to_info(),
            "is_depth_map": isinstance(encoder, DepthEncoderConfig),
        }


def _encode_image(image: Pixels, frame_index: int) -> tuple[str, bytes]:
    """Return the name and bytes of an encoded image: PNG for colour, raw TIFF for depth."""
    content, kind = io.BytesIO(), "tiff" if image.ndim == 2 else "png"
    Image.fromarray(image).save(content, kind, compression="raw", compress_level=_PNG_LEVEL)
    return f"frame-{frame_index:06d}.{kind}", content.getvalue()
