# SPDX-License-Identifier: Apache-2.0
"""Videos for v2.x datasets: other codecs and times, and the packets of a file."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av

FPS = 20


def packets(path: Path) -> list[tuple[bytes, Fraction]]:
    """Return the bytes and the time of each packet of a file, in stored order."""
    with av.open(str(path)) as container:
        found = [p for p in container.demux(container.streams.video[0]) if p.pts is not None]
        return [(bytes(p), p.pts * (p.time_base or Fraction(0))) for p in found]


def encode_as_h264(path: Path, *, b_frames: int, frames: int | None = None) -> None:
    """Replace a video by the same images in H.264, or by the first `frames` of them."""
    with av.open(str(path)) as container:
        images = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    options = {"bf": str(b_frames), "g": "12", "preset": "fast"}
    with av.open(str(path), "w", format="mp4") as output:
        stream = output.add_stream("libx264", FPS, options=options)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for image in images[:frames]:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        output.mux(stream.encode(None))


def shift_frames(path: Path, shift: Fraction) -> None:
    """Show every frame but the first `shift` seconds later."""
    copy = path.with_name("shifted.mp4")
    with av.open(str(path)) as source, av.open(str(copy), "w", format="mp4") as output:
        stream = output.add_stream_from_template(source.streams.video[0], opaque=True)
        for number, packet in enumerate(source.demux(source.streams.video[0])):
            if packet.pts is None or packet.time_base is None:
                continue
            packet.pts += round(shift / packet.time_base) * min(number, 1)
            packet.dts = packet.pts
            packet.stream = stream
            output.mux(packet)
    copy.replace(path)
