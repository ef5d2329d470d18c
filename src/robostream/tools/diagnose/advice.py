# SPDX-License-Identifier: Apache-2.0
"""Whether to decode a video on the CPU or on the GPU, by what was measured. Pure."""

from __future__ import annotations

# Images/s that a loader with eight workers got from an H200's NVDEC, H.264 (docs/gpu.md): pictures
# up to so many pixels, GOPs up to so many frames, images/s.
_NVDEC = (
    (256 * 256, 1 << 30, 8_400),
    (1 << 30, 16, 2_900),
    (1 << 30, 1 << 30, 2_300),
)


def where_to_decode(
    images_per_s: float, cores: int, width: int, height: int, gop_frames: float
) -> str:
    """Return advice for a video that the GPU can decode.

    Args:
        images_per_s: What one core decodes of it.
        cores: How many cores there are for it.
        width: Of its pictures.
        height: Of its pictures.
        gop_frames: From one key frame to the next.
    """
    on_gpu = next(
        rate
        for most_pixels, most_frames, rate in _NVDEC
        if width * height <= most_pixels and gop_frames <= most_frames
    )
    on_cpu = images_per_s * cores
    choice = "cuda" if on_gpu > on_cpu else "cpu"
    return (
        f"The GPU can decode this video. A loader with eight workers got about {on_gpu:,} images/s "
        f"of videos as large or larger from an H200 (docs/gpu.md); {cores} cores here decode about "
        f"{on_cpu:,.0f} of this one. "
        f"So choose video_decode_device={choice!r}, and divide both by the ranks that share them."
    )
