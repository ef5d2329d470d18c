# SPDX-License-Identifier: Apache-2.0
"""Compare how fast FFmpeg, as robostream calls it, and Pillow decode plain PNGs, and their pixels.

The images show the synthetic robot, encoded as recorders do. Milliseconds are for one image on one
thread, the best of several rounds in which both take turns.
"""

from __future__ import annotations

import time
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.assemble.images import decode_plain_png
from robostream.bench.tables import format_table
from robostream.tools import SynthSpec
from robostream.tools.synth.spec import frames_of, image_key, script_of

SIZES = ((256, 256), (640, 480))
IMAGES, ROUNDS = 8, 9


def encode_images(width: int, height: int) -> list[bytes]:
    """Return PNGs of some frames of one camera."""
    spec = SynthSpec(episodes=1, min_frames=IMAGES, max_frames=IMAGES, width=width, height=height)
    frames = list(frames_of(spec, script_of(spec, 0)))
    key = next(key for key in frames[0] if key.startswith(image_key("")))
    return [_encode(frame[key]) for frame in frames]


def _encode(pixels: npt.NDArray[np.uint8]) -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def decode_with_pillow(encoded: bytes) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(BytesIO(encoded)))


def main() -> None:
    """Print a table."""
    table = []
    for size in SIZES:
        files = encode_images(*size)
        ways = {"Pillow": decode_with_pillow, "FFmpeg": decode_plain_png}
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, decode in ways.items():
                begin = time.process_time()
                for file in files:
                    decode(file)
                best[name] = min(best[name], (time.process_time() - begin) / IMAGES)
        is_same = all(np.array_equal(*(decode(f) for decode in ways.values())) for f in files)
        table.append(["{}x{}".format(*size), *(1e3 * s for s in best.values()), is_same])
    print(format_table(["size", "Pillow, ms", "FFmpeg, ms", "same pixels"], table))


if __name__ == "__main__":
    main()
