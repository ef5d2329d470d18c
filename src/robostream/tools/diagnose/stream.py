# SPDX-License-Identifier: Apache-2.0
"""The video stream of a file: codec, rate, key frames, and one frame decoded on CPU or GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

import av
import numpy as np
from av.codec.hwaccel import HWAccel

from robostream.decode import CodecConfig, FrameIndex, new_context, new_packet
from robostream.errors import StorageError, VideoFileError
from robostream.storage import ByteSource
from robostream.tools.diagnose.file import FileCheck
from robostream.tools.diagnose.machine import Gpu

# In an stsd box, the tag of the first entry is 16 bytes after the start of the box's name.
_TAG = re.compile(rb"vide.*?stsd.{12}(.{4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Gops:
    """How far apart the key frames of a video file are.

    Attributes:
        count: Number of frames at which decoding can start.
        has_b_frames: Whether frames are stored in another order than shown.
        num_with_leading: GOPs with frames shown before their key frame, as open GOPs have them.
    """

    count: int
    min_frames: int
    median_frames: float
    max_frames: int
    has_b_frames: bool
    num_with_leading: int


@dataclass(frozen=True, slots=True)
class VideoStream:
    """A video file's stream; `pix_fmt` is None if no frame could be decoded."""

    codec: str
    decoder: str
    pix_fmt: str | None
    width: int
    height: int
    num_frames: int
    duration_s: float
    bits_per_s: float
    gops: Gops


@dataclass(frozen=True, slots=True)
class GpuDecoding:
    """Whether the GPU decodes one video, and why."""

    works: bool
    reason: str


@dataclass(frozen=True, slots=True)
class EpisodeSpan:
    """Where an episode lies in a video file, and how well its times match the table's.

    Attributes:
        start_s: When it starts in the file, according to the table.
        stop_s: When it stops, according to the table.
        largest_error_s: The largest deviation of a frame's time from an even frame rate.
        tolerance_s: The largest deviation allowed from the table's times.
        matches: Whether all frames are within `tolerance_s`.
        starts_at_key: Whether its first frame is a key frame.
    """

    first_frame: int
    last_frame: int
    start_s: float
    stop_s: float
    largest_error_s: float
    tolerance_s: float
    matches: bool
    starts_at_key: bool


def describe_stream(index: FrameIndex, pix_fmt: str | None) -> VideoStream:
    """Return the properties of a stream from its index. Pure."""
    config = index.configs[0]
    times_s = index.times_s()
    frames = index.num_frames
    # The last frame is assumed to last as long as the average of the others.
    duration_s = float(times_s[-1] - times_s[0]) * frames / max(frames - 1, 1)
    bits = 8 * float(index.sizes.sum(dtype=np.int64))
    return VideoStream(
        codec=av.Codec(config.decoder, "r").canonical_name,
        decoder=config.decoder,
        pix_fmt=pix_fmt,
        width=config.width,
        height=config.height,
        num_frames=frames,
        duration_s=duration_s,
        bits_per_s=bits / duration_s if duration_s else 0.0,
        gops=describe_gops(index),
    )


def describe_gops(index: FrameIndex) -> Gops:
    """Return how far apart the frames are at which decoding can start. Pure."""
    lengths = index.gop_lengths()
    edges = [*index.starts.tolist(), len(index.sizes)]
    leading = sum(
        any(0 <= frame < first_frame for frame in index.frames_of(edges[gop], edges[gop + 1]))
        for gop, first_frame in enumerate(index.start_frames.tolist())
    )
    return Gops(
        count=len(lengths),
        min_frames=int(lengths.min()),
        median_frames=float(np.median(lengths)),
        max_frames=int(lengths.max()),
        has_b_frames=index.packets is not None,
        num_with_leading=leading,
    )


def codec_tag(file: FileCheck, source: ByteSource) -> str | None:
    """Return the four letters that name the codec of the first video track, if they are found."""
    moov = next((box for box in file.boxes if box.kind == "moov"), None)
    found = _TAG.search(source.read(moov.start, moov.stop)) if moov else None
    return found[1].decode("ascii", "backslashreplace") if found else None


def open_context(config: CodecConfig, *, on_gpu: bool) -> av.VideoCodecContext:
    """Return a decoder; with `on_gpu` one that uses NVDEC, if FFmpeg has one for this codec."""
    # NVDEC works with FFmpeg's own decoder of a codec, which has the codec's name.
    name = av.Codec(config.decoder, "r").canonical_name if on_gpu else config.decoder
    device = HWAccel("cuda", allow_software_fallback=False) if on_gpu else None
    return new_context(config, name, device)


def decode_one(
    context: av.VideoCodecContext, source: ByteSource, index: FrameIndex, frame: int
) -> av.VideoFrame | None:
    """Return the last frame that a new decoder outputs for the packets up to a frame's, if any."""
    gop = int(index.gops_of(np.array([frame]))[0])
    stop = int(index.packets_of(np.array([frame]))[0]) + 1
    images: list[av.VideoFrame] = []
    for packet in range(int(index.starts[gop]), stop):
        at = int(index.byte_offsets[packet])
        content = source.read(at, at + int(index.sizes[packet]))
        images = context.decode(new_packet(content)) or images
    images = context.decode(None) or images
    return images[-1] if images else None


def try_gpu(gpu: Gpu, source: ByteSource, index: FrameIndex, frame: int) -> GpuDecoding:
    """Return whether the GPU decodes a frame of this video. Tries it unless the machine cannot."""
    if gpu.obstacle is not None:
        return GpuDecoding(False, gpu.obstacle)
    config = index.config_of(frame)
    codec = av.Codec(config.decoder, "r").canonical_name
    try:
        context = open_context(config, on_gpu=True)
        if not context.is_hwaccel:
            return GpuDecoding(False, f"FFmpeg has no NVIDIA decoder for {codec}")
        image = decode_one(context, source, index, frame)
    except av.FFmpegError as error:
        return GpuDecoding(False, f"the GPU cannot decode this {codec} video ({error.strerror})")
    except (StorageError, VideoFileError) as error:
        return GpuDecoding(False, f"not tried: {error}")
    if image is None:
        return GpuDecoding(False, f"the GPU returns no frame of this {codec} video")
    return GpuDecoding(True, f"a frame of this {codec} video was decoded to {image.format.name}")
