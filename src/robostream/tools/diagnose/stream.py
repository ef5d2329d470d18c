# SPDX-License-Identifier: Apache-2.0
"""What the index of a video file says about its video stream: codec, rate, key frames."""

from __future__ import annotations

import re

import av
import numpy as np

from robostream.decode import FrameIndex
from robostream.storage import ByteSource
from robostream.tools.diagnose.file import FileCheck
from robostream.tools.diagnose.records import Gops, Stream

# In an stsd box, the tag of the first entry is 16 bytes after the beginning of the box's name.
_TAG = re.compile(rb"vide.*?stsd.{12}(.{4})", re.DOTALL)


def describe_stream(index: FrameIndex, pix_fmt: str | None) -> Stream:
    """Return what an index says about its stream. Pure."""
    config = index.configs[0]
    times_s = index.times_s()
    frames = index.num_frames
    # The last frame is taken to last as long as the others do on average.
    duration_s = float(times_s[-1] - times_s[0]) * frames / max(frames - 1, 1)
    bits = 8 * float(index.sizes.sum(dtype=np.int64))
    return Stream(
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
    leading = 0
    for gop, first_frame in enumerate(index.start_frames.tolist()):
        shown = index.frames_of(edges[gop], edges[gop + 1])
        leading += any(0 <= frame < first_frame for frame in shown)
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
