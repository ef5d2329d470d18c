# SPDX-License-Identifier: Apache-2.0
"""Compare FFmpeg's scaling filters with torch's antialiased resize: PSNR and time.

The frames show the synthetic robot in 4:2:0, as decoders return them. Each filter scales them to
224x224, then they are converted to RGB. Torch scales the full-size RGB. Microseconds are CPU time
of one frame on one thread, with the conversion. It writes benchmarks/results/resize.json and the
table of docs/decoding.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import av
import numpy as np
import torch
from av.video.reformatter import VideoReformatter
from torch.nn.functional import interpolate

from robostream.bench.measure import cpu_s, run_rounds
from robostream.bench.results import Publication, Table, format_cell, machine
from robostream.decode import DecodedFrame, FrameReader, Renderer, load_ffmpeg
from robostream.decode.frames import convert
from robostream.decode.render import FILTER
from robostream.tools import SynthSpec
from robostream.tools.synth.recording import frames_of, image_key, script_of

SOURCES = ((256, 256), (640, 480), (1280, 720))
TARGET = (224, 224)
EXACT = 1 << 18 | 1 << 19  # accurate rounding, bit-exact
FILTERS = {
    "bilinear, exact (used)": FILTER,
    "bicubic, exact": 4 | EXACT,
    "area, exact": 32 | EXACT,
    "lanczos, exact": 512 | EXACT,
    "fast bilinear": 1,
}
TORCH = "torch, after drawing the full frame"
FRAMES, ROUNDS = 4, 15
REPO = Path(__file__).resolve().parents[1]

Image = np.ndarray


def main() -> None:
    torch.set_num_threads(1)
    rows = [row for size in SOURCES for row in compare(*size)]
    PUBLICATION.publish(REPO, {"machine": machine(), "rows": rows})


def make_table(repo: Path) -> str:
    """Return the table of the document: a row for each filter, a column for each size."""
    rows = PUBLICATION.read(repo)["rows"]
    cells = {
        (row["filter"], row["size"]): f"{row['psnr_db'] or 'equal'}, {format_cell(row['us'])}"
        for row in rows
    }
    filters, sizes = dict.fromkeys(name for name, _ in cells), dict.fromkeys(s for _, s in cells)
    header = ["filter", *(f"{size}: PSNR, us" for size in sizes)]
    return Table(header, [[f, *(cells[f, size] for size in sizes)] for f in filters]).markdown()


PUBLICATION = Publication("resize.json", {Path("docs/decoding.md"): {"resize": make_table}})


def compare(width: int, height: int) -> list[dict[str, object]]:
    """Return a row for each filter, and one for torch itself."""
    decoded = make_frames(width, height)
    wanted = [by_torch(draw(frame)) for frame in decoded]
    scalers = {name: Renderer(load_ffmpeg(), flags) for name, flags in FILTERS.items()}
    ways: dict[str, Callable[[int], Image]] = {
        name: lambda n, scaler=scaler: draw(scaler.scale(decoded[n], TARGET, file=""))
        for name, scaler in scalers.items()
    }
    ways[TORCH] = lambda n: by_torch(draw(decoded[n]))
    times = timed(ways)
    return [
        {
            "size": f"{width}x{height}",
            "filter": name,
            "psnr_db": psnr([way(n) for n in range(FRAMES)], wanted),
            "us": round(times[name]),
        }
        for name, way in ways.items()
    ]


def timed(ways: dict[str, Callable[[int], Image]]) -> dict[str, float]:
    """Return the microseconds that a frame takes: the best of several rounds, in turns."""

    def run(way: Callable[[int], Image]) -> float:
        return cpu_s(lambda: deque(map(way, range(FRAMES)), maxlen=0)) / FRAMES * 1e6

    runs = {name: partial(run, way) for name, way in ways.items()}
    return {name: min(tries) for name, tries in run_rounds(runs, ROUNDS).items()}


def make_frames(width: int, height: int) -> list[DecodedFrame]:
    spec = SynthSpec(episodes=1, min_frames=FRAMES, max_frames=FRAMES, width=width, height=height)
    frames = list(frames_of(spec, script_of(spec, 0)))
    key = next(key for key in frames[0] if key.startswith(image_key("")))
    reformatter, reader = VideoReformatter(), FrameReader()
    colours = (av.VideoFrame.from_ndarray(frame[key], format="rgb24") for frame in frames)
    return [reader.read(convert(reformatter, c, "yuv420p"), "") for c in colours]


RENDERER = Renderer(load_ffmpeg())


def draw(frame: DecodedFrame) -> Image:
    out = np.empty(frame.layout.shape, np.uint8)
    RENDERER.draw(frame, out, file="")
    return out


def by_torch(image: Image) -> Image:
    tensor = torch.from_numpy(image)[None].float()
    scaled = interpolate(tensor, TARGET, mode="bilinear", antialias=True)
    return scaled.round_().clamp_(0, 255).to(torch.uint8)[0].numpy()


def psnr(found: list[Image], wanted: list[Image]) -> float | None:
    """Return the PSNR in dB, or None if all values are equal."""
    error = np.mean((np.stack(found).astype(float) - np.stack(wanted)) ** 2)
    return None if error == 0 else round(float(10 * np.log10(255**2 / error)), 1)


if __name__ == "__main__":
    main()
