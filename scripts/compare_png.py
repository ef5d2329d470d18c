# SPDX-License-Identifier: Apache-2.0
"""Compare how fast FFmpeg, as robostream calls it, and Pillow decode plain PNGs, and their pixels.

The images show the synthetic robot, encoded as recorders do. Milliseconds are CPU time of one image
on one thread, the best of several rounds in which both take turns. It writes
benchmarks/results/png.json and the table of docs/decoding.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.assemble.sample import decode_plain_png
from robostream.bench.measure import cpu_s, run_rounds
from robostream.bench.results import Publication, Table, machine
from robostream.tools import SynthSpec
from robostream.tools.synth.recording import frames_of, image_key, script_of

SIZES = ((256, 256), (640, 480))
IMAGES, ROUNDS = 8, 9
REPO = Path(__file__).resolve().parents[1]
COLUMNS = {
    "PNG": "size",
    "FFmpeg, ms": "ffmpeg_ms",
    "Pillow, ms": "pillow_ms",
    "Pillow over FFmpeg": lambda row: row["pillow_ms"] / row["ffmpeg_ms"],
}


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


def decode_all(decode: Callable[[bytes], object], files: list[bytes]) -> float:
    """Return the processor time that decoding all files takes."""
    return cpu_s(lambda: deque(map(decode, files), maxlen=0))


def main() -> None:
    """Measure, and refresh the document."""
    rows = []
    for size in SIZES:
        files = encode_images(*size)
        ways = {"pillow": decode_with_pillow, "ffmpeg": decode_plain_png}
        runs = {name: partial(decode_all, decode, files) for name, decode in ways.items()}
        times = {
            f"{name}_ms": 1e3 * min(tries) / IMAGES
            for name, tries in run_rounds(runs, ROUNDS).items()
        }
        assert all(np.array_equal(*(decode(f) for decode in ways.values())) for f in files)
        rows.append({"size": "{}x{}".format(*size), **times})
    PUBLICATION.publish(REPO, {"machine": machine(), "rows": rows})


def make_table(repo: Path) -> str:
    """Return the table of the document."""
    return Table.of(PUBLICATION.read(repo)["rows"], COLUMNS).markdown()


PUBLICATION = Publication("png.json", {Path("docs/decoding.md"): {"png": make_table}})


if __name__ == "__main__":
    main()
