# SPDX-License-Identifier: Apache-2.0
"""One frame straight out of a decoder, on the CPU or the GPU: its format, and whether it comes."""

from __future__ import annotations

import av
import numpy as np
from av.codec.hwaccel import HWAccel

from robostream.decode import FrameIndex
from robostream.fetch import ByteSource
from robostream.tools.diagnose_gpu import Gpu, GpuDecoding


def decode_one(
    source: ByteSource, index: FrameIndex, frame: int, *, on_gpu: bool
) -> av.VideoFrame | None:
    """Return a frame of the GOP that holds `frame`, or None if the decoder gives none."""
    gop = int(index.gops_of(np.array([frame]))[0])
    config = index.configs[int(index.start_configs[gop])]
    first = int(index.starts[gop])
    stop = int(index.packets_of(np.array([frame]))[0]) + 1
    # FFmpeg's own decoder for a codec bears the codec's name, and it is the one GPUs work with.
    name = av.Codec(config.decoder, "r").canonical_name if on_gpu else config.decoder
    device = HWAccel("cuda", allow_software_fallback=False) if on_gpu else None
    context = av.CodecContext.create(name, "r", hwaccel=device)
    assert isinstance(context, av.VideoCodecContext)
    context.extradata = config.extradata or None
    context.width, context.height = config.width, config.height
    found: list[av.VideoFrame] = []
    for packet in range(first, max(stop, first + 1)):
        at = int(index.positions[packet])
        content = source.read(at, at + int(index.sizes[packet]))
        found += context.decode(av.Packet(content))
    found += context.decode(None)
    return found[-1] if found else None


def try_gpu(gpu: Gpu, source: ByteSource, index: FrameIndex, frame: int) -> GpuDecoding:
    """Return whether the GPU decodes a frame of this video, by trying it where that can work."""
    if gpu.obstacle is not None:
        return GpuDecoding(False, gpu.obstacle)
    codec = av.Codec(index.configs[0].decoder, "r").canonical_name
    try:
        found = decode_one(source, index, frame, on_gpu=True)
    except av.FFmpegError as error:
        return GpuDecoding(False, f"NVDEC refuses this {codec} video ({error.strerror})")
    if found is None:
        return GpuDecoding(False, f"NVDEC gives no picture of this {codec} video")
    return GpuDecoding(True, f"NVDEC decoded a frame of this {codec} video ({found.format.name})")
