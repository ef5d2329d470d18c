# SPDX-License-Identifier: Apache-2.0
"""Decoding on an NVIDIA GPU (NVDEC), through PyAV; pictures stay in the GPU's memory."""

from __future__ import annotations

import functools

import av
from av.codec.hwaccel import HWAccel

from robostream.decode.codec.pyav_backend import PyavBackend, new_context
from robostream.decode.index.frame_index import CodecConfig
from robostream.decode.picture.on_device import (
    beside_decoders,
    device_memory,
    picture_on_device,
)


def open_nvdec(device: str) -> PyavBackend:
    """Return what decodes on a GPU, such as "cuda:0"."""
    # A decoder has memory for few pictures, so each is taken out before the next is decoded.
    return PyavBackend(
        functools.partial(open_on_gpu, device=device), picture_on_device, frames_at_a_time=1
    )


def open_on_gpu(config: CodecConfig, device: str) -> av.VideoCodecContext:
    """Return a decoder on a GPU that leaves its pictures there; raises what PyAV does."""
    # NVDEC works with FFmpeg's own decoder of a codec, which has the codec's name.
    name = av.Codec(config.decoder, "r").canonical_name
    accelerator = HWAccel(
        "cuda",
        device=device.removeprefix("cuda:"),
        allow_software_fallback=False,
        # A context of FFmpeg's own would have other flags than torch's.
        options={"primary_ctx": "0", "current_ctx": "1"},
        is_hw_owned=True,
    )
    # FFmpeg takes the CUDA context that this thread used last: with this, torch's on this GPU.
    with beside_decoders(device):
        device_memory(1, device).zero_()
        return new_context(config, name, accelerator)
