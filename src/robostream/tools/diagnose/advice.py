# SPDX-License-Identifier: Apache-2.0
"""Whether to decode a video on the CPU or on the GPU, by what was measured. Pure."""

from __future__ import annotations

# Images/s of NVDEC on an H200, H.264 (docs/gpu.md): pictures up to so many pixels, GOPs up to so
# many frames, images/s. The first is a loader's with four workers; the others one process with four
# threads reached, and several processes may reach more.
_NVDEC = (
    (640 * 480, 16, 3_900),
    (640 * 480, 1 << 30, 4_100),
    (1 << 30, 16, 1_900),
    (1 << 30, 1 << 30, 2_600),
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
        f"The GPU can decode this video. An H200's NVDEC decoded about {on_gpu:,} images/s of such "
        f"videos (docs/gpu.md); {cores} cores here decode about {on_cpu:,.0f} of this one. So "
        f"choose video_decode_device={choice!r}, and divide both by the ranks that share them."
    )
