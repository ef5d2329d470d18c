# SPDX-License-Identifier: Apache-2.0
"""Decodes one frame, on the CPU or the GPU, without the rest of robostream."""

from __future__ import annotations

import av
import numpy as np
from av.codec.hwaccel import HWAccel

from robostream.decode import CodecConfig, FrameIndex, new_packet
from robostream.errors import StorageError, VideoFileError
from robostream.storage import ByteSource
from robostream.tools.diagnose.gpu import Gpu, GpuDecoding


def open_context(config: CodecConfig, *, on_gpu: bool) -> av.VideoCodecContext:
    """Return a decoder; with `on_gpu` one that uses NVDEC, if FFmpeg has one for this codec."""
    # NVDEC works with FFmpeg's own decoder of a codec, which has the codec's name.
    name = av.Codec(config.decoder, "r").canonical_name if on_gpu else config.decoder
    device = HWAccel("cuda", allow_software_fallback=False) if on_gpu else None
    context = av.CodecContext.create(name, "r", hwaccel=device)
    assert isinstance(context, av.VideoCodecContext)
    context.extradata = config.extradata or None
    context.width, context.height = config.width, config.height
    return context


def decode_one(
    context: av.VideoCodecContext, source: ByteSource, index: FrameIndex, frame: int
) -> av.VideoFrame | None:
    """Return the last picture that a new decoder gives for the packets up to a frame's, if any."""
    gop = int(index.gops_of(np.array([frame]))[0])
    stop = int(index.packets_of(np.array([frame]))[0]) + 1
    pictures: list[av.VideoFrame] = []
    for packet in range(int(index.starts[gop]), stop):
        at = int(index.byte_offsets[packet])
        content = source.read(at, at + int(index.sizes[packet]))
        pictures = context.decode(new_packet(content)) or pictures
    pictures = context.decode(None) or pictures
    return pictures[-1] if pictures else None


def try_gpu(gpu: Gpu, source: ByteSource, index: FrameIndex, frame: int) -> GpuDecoding:
    """Return whether the GPU decodes a frame of this video; tried if nothing speaks against it."""
    if gpu.obstacle is not None:
        return GpuDecoding(False, gpu.obstacle)
    config = index.config_of(frame)
    codec = av.Codec(config.decoder, "r").canonical_name
    try:
        context = open_context(config, on_gpu=True)
        if not context.is_hwaccel:
            return GpuDecoding(False, f"FFmpeg has no NVIDIA decoder for {codec}")
        picture = decode_one(context, source, index, frame)
    except av.FFmpegError as error:
        return GpuDecoding(False, f"the GPU cannot decode this {codec} video ({error.strerror})")
    except (StorageError, VideoFileError) as error:
        return GpuDecoding(False, f"not tried: {error}")
    if picture is None:
        return GpuDecoding(False, f"the GPU gives no picture of this {codec} video")
    return GpuDecoding(True, f"a frame of this {codec} video was decoded to {picture.format.name}")
