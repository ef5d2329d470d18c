# SPDX-License-Identifier: Apache-2.0
"""Compare FFmpeg's scaling filters with torch's antialiased resize: PSNR and time.

The frames show the synthetic robot in 4:2:0, as decoders return them. Each filter scales them to
224x224, then they are converted to RGB. Torch scales the full-size RGB. Microseconds are for one
frame on one thread, including the conversion.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import av
import numpy as np
import torch
from av.video.reformatter import VideoReformatter
from torch.nn.functional import interpolate

from robostream.bench.tables import format_table
from robostream.decode import DecodedFrame, FrameReader, Renderer, load_ffmpeg
from robostream.decode.frames import convert
from robostream.decode.render import FILTER
from robostream.tools import SynthSpec
from robostream.tools.synth.spec import frames_of, image_key, script_of

SOURCES = ((256, 256), (640, 480), (1280, 720))
TARGET = (224, 224)
EXACT = 1 << 18 | 1 << 19  # accurate rounding, bit-exact
FILTERS = {
    "fast bilinear": 1,
    "bilinear": 2,
    "bilinear, exact (ours)": FILTER,
    "bicubic, exact": 4 | EXACT,
    "area, exact": 32 | EXACT,
    "lanczos, exact": 512 | EXACT,
}
MODES = ("bilinear", "bicubic")
FRAMES, ROUNDS = 4, 9

Image = np.ndarray


def main() -> None:
    torch.set_num_threads(1)
    header = ["source", "filter", *(f"PSNR to torch {mode}, dB" for mode in MODES), "us"]
    print(f"PyAV {av.__version__}, FFmpeg {av.ffmpeg_version_info}, torch {torch.__version__}")
    print(format_table(header, [row for size in SOURCES for row in compare(*size)]))


def compare(width: int, height: int) -> list[list[object]]:
    """Return a row for each filter, and one for torch itself."""
    decoded = make_frames(width, height)
    full = [draw(frame) for frame in decoded]
    wanted = {mode: [by_torch(image, mode) for image in full] for mode in MODES}
    scalers = {name: Renderer(load_ffmpeg(), flags) for name, flags in FILTERS.items()}
    ways: dict[str, Callable[[int], Image]] = {
        name: lambda n, scaler=scaler: draw(scaler.scale(decoded[n], TARGET, file=""))
        for name, scaler in scalers.items()
    }
    for mode in MODES:
        ways[f"torch {mode}"] = lambda n, mode=mode: by_torch(draw(decoded[n]), mode)
    times = timed(ways)
    return [
        [
            f"{width}x{height}",
            name,
            *(psnr([way(n) for n in range(FRAMES)], wanted[mode]) for mode in MODES),
            times[name],
        ]
        for name, way in ways.items()
    ]


def timed(ways: dict[str, Callable[[int], Image]]) -> dict[str, float]:
    """Return the microseconds that a frame takes: the best of several rounds, in turns."""
    tries: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begin = time.perf_counter()
            for number in range(FRAMES):
                way(number)
            tries[name].append((time.perf_counter() - begin) / FRAMES * 1e6)
    return {name: min(found) for name, found in tries.items()}


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


def by_torch(image: Image, mode: str) -> Image:
    tensor = torch.from_numpy(image)[None].float()
    scaled = interpolate(tensor, TARGET, mode=mode, antialias=True)
    return scaled.round_().clamp_(0, 255).to(torch.uint8)[0].numpy()


def psnr(found: list[Image], wanted: list[Image]) -> str:
    error = np.mean((np.stack(found).astype(float) - np.stack(wanted)) ** 2)
    return "equal" if error == 0 else f"{10 * np.log10(255**2 / error):.1f}"


if __name__ == "__main__":
    main()
