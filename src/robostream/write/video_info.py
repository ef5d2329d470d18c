# SPDX-License-Identifier: Apache-2.0
"""What info.json records about a camera: its video as found in the file, and its encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av

from robostream.write.encoder_options import DepthEncoderConfig, VideoEncoderConfig


def video_info(
    path: Path, *, fps: float, encoder: VideoEncoderConfig | DepthEncoderConfig
) -> dict[str, Any]:
    """Return the `info` block of a camera whose first video is at `path`."""
    return {
        **_probe(path, fps),
        "has_audio": False,
        **encoder.to_info(),
        "is_depth_map": isinstance(encoder, DepthEncoderConfig),
    }


def _probe(path: Path, fps: float) -> dict[str, Any]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pix_fmt = stream.codec_context.pix_fmt or ""
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": stream.codec_context.codec.canonical_name,
            "video.pix_fmt": pix_fmt,
            "video.fps": int(fps),  # what FFmpeg says is a guess, and wrong for one or two frames
            "video.channels": len(av.VideoFormat(pix_fmt).components),
        }
