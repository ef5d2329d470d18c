# SPDX-License-Identifier: Apache-2.0
"""`bench decode`: random access on one thread, against the decode floor.

The floor is PyAV decoding the same files from the first frame to the last, without colour
conversion. All ways to read take turns in each round, each with an engine of its own; a ratio is
the median over rounds of (images/s of the way) / (images/s of the floor in that round).
"""

from __future__ import annotations

import itertools
import time
import timeit
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.bench.measure import BenchData, run_rounds
from robostream.bench.processes import decode_floor
from robostream.bench.results import Figures, Measured, Table, ratios
from robostream.decode import (
    BufferPool,
    FrameEngine,
    PackedFrame,
    PyavBackend,
    Renderer,
    VideoFile,
    build_index,
    load_ffmpeg,
    plan_runs,
)
from robostream.storage import LocalSource
from robostream.tools import SynthSpec

Samples = list[list[tuple[str, int]]]
_LONG_GOP = 250
# Without a cache, a frame of a long GOP costs as much as all before it, so few are read.
_SAMPLES_OF_LONG_GOPS = 40
_IMAGES = 64
_HEADER = ["videos", "read", "floor images/s", "images/s", "over floor", "decoded per delivered"]


@dataclass(frozen=True, slots=True)
class VideoSet:
    """Samples of some videos: the (file, frame) of each camera, in order."""

    spec: SynthSpec
    samples: Samples

    @property
    def name(self) -> str:
        """The codec and the distance of key frames."""
        return f"{self.spec.codec} g={self.spec.gop}"

    @property
    def files(self) -> list[str]:
        """The files of all cameras."""
        return list(dict.fromkeys(file for sample in self.samples for file, _ in sample))


def run(quick: bool) -> Measured:
    """Measure all ways to read, and the cost of an image."""
    short = SynthSpec(episodes=12, min_frames=270, max_frames=300, video_file_mb=1e-6)
    if quick:
        short = replace(short, episodes=6, min_frames=60, max_frames=90)
    long = replace(short, codec="h264", gop=_LONG_GOP, crf=23)
    videos = [_open("decode-av1", short), _open("decode-h264", long)]
    ways = [row for one in videos for row in _measure(one, rounds=3 if quick else 5)]
    costs = [{"videos": one.name, **_costs(one.files[0])} for one in videos]
    tables = Table(_HEADER, [list(row.values()) for row in ways]), Table.of(costs)
    text = "\n\nmicroseconds per image\n".join(table.text() for table in tables)
    return {"results": ways, "costs_us": costs}, text


def _open(name: str, spec: SynthSpec) -> VideoSet:
    cameras = BenchData(name, spec).open().glob("videos/*")
    episodes = zip(*(sorted(map(str, each.glob("*/*.mp4"))) for each in cameras), strict=True)
    samples = [
        [(file, frame) for file in files]
        for files in episodes
        for frame in range(build_index(LocalSource(files[0])).num_frames)
    ]
    return VideoSet(spec, samples)


def _measure(videos: VideoSet, *, rounds: int) -> list[Figures]:
    """Return a row for each way to read: rate, ratio to the floor, decoded per delivered."""
    seeds = iter(range(rounds))
    results: dict[str, list[Any]] = run_rounds(
        {
            "floor": lambda: decode_floor(videos.files, 1),
            "ways": lambda: _read_all_ways(videos, np.random.default_rng(next(seeds))),
        },
        rounds,
    )
    floors, found = results["floor"], results["ways"]
    return [
        {
            "videos": videos.name,
            "read": way,
            "floor_images_per_s": median(floors),
            "images_per_s": median(one[way][0] for one in found),
            "over_floor": median(ratios([one[way][0] for one in found], floors)),
            "amplification": median(one[way][1] for one in found),
        }
        for way in found[0]
    ]


def _read_all_ways(videos: VideoSet, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return images/s and images decoded per image delivered, for each way to read."""
    samples, spec = videos.samples, videos.spec
    at_random = [samples[place] for place in rng.permutation(len(samples))]
    few = at_random[:_SAMPLES_OF_LONG_GOPS] if spec.gop == _LONG_GOP else at_random
    all_bytes = len(samples) * len(samples[0]) * spec.width * spec.height * 3 // 2
    found = {}
    if spec.gop != _LONG_GOP:
        rate = decode_floor(videos.files, 1, at_random=True)
        found["at random, decoding alone"] = rate, (spec.gop + 1) / 2
    with _engine(budget_bytes=0) as engine:
        found["at random, nothing kept"] = _read(engine, videos, few)
    with _engine(budget_bytes=2 * all_bytes) as engine:
        found["at random, room for all"] = _read(engine, videos, at_random)
        found["at random, all kept"] = _read(engine, videos, at_random)
    with _engine(budget_bytes=config.MAP_FRAME_CACHE_BYTES) as engine:
        found["in order"] = _read(engine, videos, samples)
    return found


_engine = partial(FrameEngine, LocalSource, max_files=config.VIDEO_DECODER_CACHE_SIZE)


def _read(engine: FrameEngine, videos: VideoSet, samples: Samples) -> tuple[float, float]:
    out = np.zeros((1, 3, videos.spec.height, videos.spec.width), np.uint8)
    before = engine.statistics.summary()
    begin = time.perf_counter()
    for file, frame in itertools.chain.from_iterable(samples):
        engine.read(file, [frame], out)
    seconds = time.perf_counter() - begin
    after = engine.statistics.summary()
    delivered, decoded = (after[n] - before[n] for n in ("images_delivered", "images_decoded"))
    return delivered / seconds, decoded / delivered


def _costs(file: str) -> dict[str, float]:
    """Return the microseconds it takes to convert a decoded image, and to cache it."""
    source = LocalSource(file)
    index = build_index(source)
    opened = VideoFile(file, source, index)
    runs = [(opened, run) for run in plan_runs(index, range(min(_IMAGES, index.num_frames)))]
    frames = [frame for _, _, frame in PyavBackend().decode(runs) if frame is not None]
    renderer, layout = Renderer(load_ffmpeg()), frames[0].layout
    pool = BufferPool(2 * len(frames) * layout.nbytes)
    slots = [PackedFrame(*pool.memory(pool.take(layout.nbytes) or 0), layout) for _ in frames]
    colours = np.zeros((len(frames), *layout.shape), np.uint8)

    def per_image(work: Callable[[int], None]) -> float:
        tries = timeit.repeat(lambda: deque(map(work, range(len(frames))), 0), number=1, repeat=9)
        return median(tries) / len(frames) * 1e6

    def draw(out: npt.NDArray[Any]) -> Callable[[int], None]:
        return lambda n: renderer.draw(frames[n], out[n], file=file)

    return {
        "convert": per_image(draw(colours)),
        "convert to float32": per_image(draw(colours.astype(np.float32))),
        "keep": per_image(lambda n: renderer.pack(frames[n], slots[n])),
        "convert a kept one": per_image(
            lambda n: renderer.draw_packed([slots[n]], colours[n : n + 1], file=file)
        ),
    }
