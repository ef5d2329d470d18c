# SPDX-License-Identifier: Apache-2.0
"""Images delivered by the frame engine against the floor: decoding alone, in order.

The floor is what PyAV needs to decode the same files from the first frame to the last, without
colour conversion, on the same number of threads. All cases take turns in each round; a ratio is the
median over rounds of (images/s of the case) / (images/s of the floor in the same round). With
budget 0 an image also needs the frames before it in its GOP; what that leaves of the floor is
measured too: each image decoded by itself, in random order, and nothing else. Engines live through
all rounds, as in training; the first round only warms up. In each round the files go by new names,
so that no frame is left over from the round before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import window_targets
from robostream.bench.floor import decode_floor, random_floor
from robostream.bench.table import format_table, machine
from robostream.config import PICTURES_PER_READ, quiet_encoders
from robostream.decode import NEVER, FrameEngine, Want
from robostream.fetch import LocalSource
from robostream.loader import frame_uses
from robostream.tools import SynthSpec, make_dataset

TITLE = "decode: images/s of the frame engine against decoding alone"
Int64s = npt.NDArray[np.int64]

_SIDE_PX = 256
_FPS = 30
_NOW = np.zeros(1, np.int64)
_EIGHT_STEPS = np.arange(-7, 1) * _FPS
_BATCH = 32
# Above what all images take as 4:2:0, so that each is decoded once a round; not so far above that
# memory is never used again.
_FULL_STORE = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class Videos:
    """Episodes laid end to end, one file for each camera and episode.

    `files[episode]` are its files, `lengths[episode]` its number of frames.
    """

    codec: str
    files: list[list[str]]
    lengths: Int64s

    @property
    def num_frames(self) -> int:
        """How many frames the episodes have together."""
        return int(self.lengths.sum())

    def locate(self, samples: Int64s) -> tuple[Int64s, Int64s]:
        """Return the episode of each sample, and the frame in it."""
        stops = np.cumsum(self.lengths)
        episodes = np.searchsorted(stops, samples, "right")
        return episodes, samples - (stops - self.lengths)[episodes]


@dataclass(slots=True)
class Case:
    """One way to read the videos, its goals, and what it reached round by round."""

    name: str
    videos: Videos
    offsets: Int64s
    store: float
    threads: int
    goal: float
    max_amplification: float
    floors: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    amplifications: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)

    @property
    def store_bytes(self) -> int:
        """The store's budget."""
        images = self.videos.num_frames * len(self.videos.files[0])
        return int(self.store * images * _SIDE_PX**2 * 3 // 2)

    @property
    def ratio(self) -> float:
        """The median over rounds of the rate over the floor's."""
        return median(r / f for r, f in zip(self.rates, self.floors, strict=True))


def run(quick: bool) -> dict[str, Any]:
    """Measure, print the table, and return the figures."""
    quiet_encoders()
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        av1 = _make_videos(Path(folder) / "av1", quick=quick, codec="libsvtav1", gop=2, crf=30)
        long = _make_videos(Path(folder) / "long", quick=quick, codec="h264", gop=250, crf=20)
        cases = _cases(av1, long)
        _measure(cases, rounds=3 if quick else 7)
    return _report(cases)


def _cases(av1: Videos, long: Videos) -> list[Case]:
    full = _FULL_STORE
    return [
        Case("single, full store", av1, _NOW, full, 2, 0.8, 1.02),
        Case("single, full store", av1, _NOW, full, 1, 0.8, 1.02),
        Case("single, budget 0", av1, _NOW, 0, 2, 0.5, 1.5),
        Case("sarm, full store", av1, _EIGHT_STEPS, full, 2, 3.0, 0.13),
        Case("sarm, full store", av1, _EIGHT_STEPS, full, 1, 3.0, 0.13),
        Case("long, full store", long, _NOW, full, 2, 0.5, 1.05),
    ]


def _make_videos(dest: Path, *, quick: bool, codec: str, gop: int, crf: int) -> Videos:
    episodes, shortest, longest = (6, 60, 90) if quick else (12, 270, 300)
    spec = SynthSpec(
        episodes=episodes,
        min_frames=shortest,
        max_frames=longest,
        width=_SIDE_PX,
        height=_SIDE_PX,
        fps=_FPS,
        codec=codec,
        gop=gop,
        crf=crf,
        video_file_mb=1e-6,
    )
    make_dataset(dest, spec)
    cameras = [sorted(map(str, camera.glob("*/*.mp4"))) for camera in dest.glob("videos/*")]
    files = [list(of_episode) for of_episode in zip(*cameras, strict=True)]
    with FrameEngine(LocalSource, store_bytes=0) as engine:
        lengths = np.array([engine.index(of_episode[0]).num_frames for of_episode in files])
    return Videos(f"{codec} g={gop}", files, lengths)


class Order:
    """A random order of all frames, anew in each round, that knows every use ahead."""

    def __init__(self, videos: Videos, offsets: Int64s) -> None:
        self._videos = videos
        self._offsets = offsets
        self._episode_in = {f: episode for episode, fs in enumerate(videos.files) for f in fs}

    def begin(self, round_number: int) -> None:
        """Shuffle for a round, whose positions follow those of the round before."""
        count = self._videos.num_frames
        self.first_position = round_number * count
        self._round = str(round_number)
        samples = np.random.default_rng(round_number).permutation(count)
        self.episodes, frames = self._videos.locate(samples)
        lengths = self._videos.lengths[self.episodes]
        self.windows, _ = window_targets(self._offsets, frames[:, None], lengths[:, None])
        positions = np.empty(count, np.int64)
        positions[samples] = np.arange(count) + self.first_position
        of_episodes = np.split(positions, np.cumsum(self._videos.lengths)[:-1])
        self._uses = [frame_uses(self._offsets, of_episode) for of_episode in of_episodes]

    def name(self, file: str) -> str:
        """Return what a file is called in this round."""
        return f"{self._round}:{file}"

    def __call__(self, file: str, frames: Int64s, after: int) -> Int64s:
        """Return the next uses of frames, as the engine asks for them."""
        round_number, _, path = file.partition(":")
        if round_number != self._round:
            return np.full((len(frames), 1), NEVER)
        return self._uses[self._episode_in[path]].after(frames, after)


def _measure(cases: list[Case], *, rounds: int) -> None:
    orders = [Order(case.videos, case.offsets) for case in cases]
    engines = [
        FrameEngine(_open_named, store_bytes=case.store_bytes, next_uses=order, keep_used=False)
        for case, order in zip(cases, orders, strict=True)
    ]
    for round_number in range(rounds + 1):
        for case, order, engine in zip(cases, orders, engines, strict=True):
            order.begin(round_number)
            floor = _rate(decode_floor, case)
            rate, amplification = _read_all(case, order, engine)
            if round_number:
                case.floors.append(floor)
                if not case.store:
                    case.bounds.append(_rate(random_floor, case) / floor)
                case.rates.append(rate)
                case.amplifications.append(amplification)
    for engine in engines:
        engine.close()


def _rate(floor: Callable[[list[str], int], tuple[int, float]], case: Case) -> float:
    """Return images/s of decoding all videos of a case alone."""
    images, seconds = floor([file for files in case.videos.files for file in files], case.threads)
    return images / seconds


def _open_named(name: str) -> LocalSource:
    return LocalSource(name.partition(":")[2])


def _read_all(case: Case, order: Order, engine: FrameEngine) -> tuple[float, float]:
    """Return images/s and decode amplification of one round."""
    windows, episodes = order.windows, order.episodes.tolist()
    names = [[order.name(file) for file in files] for files in case.videos.files]
    cameras, steps = len(case.videos.files[0]), windows.shape[1]
    batch = np.empty((_BATCH, cameras, steps, 3, _SIDE_PX, _SIDE_PX), np.uint8)

    # The threads take groups of samples from one iterator: nobody else is woken for each of them.
    group = max(1, PICTURES_PER_READ // (cameras * steps))
    groups = iter(range(0, len(windows), group))

    def read_on() -> None:
        for first in groups:
            places = range(first, min(first + group, len(windows)))
            engine.read_all(
                [
                    Want(file, windows[place], out, order.first_position + place)
                    for place in places
                    for file, out in zip(names[episodes[place]], batch[place % _BATCH], strict=True)
                ]
            )

    before = engine.statistics.summary()
    begin = time.perf_counter()
    with ThreadPoolExecutor(case.threads) as pool:
        for done in [pool.submit(read_on) for _ in range(case.threads)]:
            done.result()
    seconds = time.perf_counter() - begin
    after = engine.statistics.summary()
    delivered = after["images_delivered"] - before["images_delivered"]
    decoded = after["images_decoded"] - before["images_decoded"]
    return delivered / seconds, decoded / delivered


def _report(cases: list[Case]) -> dict[str, Any]:
    results = [
        {
            "case": case.name,
            "codec": case.videos.codec,
            "threads": case.threads,
            "floor_images_per_s": median(case.floors),
            "images_per_s": median(case.rates),
            "ratio": case.ratio,
            "goal": case.goal,
            "amplification": median(case.amplifications),
            "max_amplification": case.max_amplification,
        }
        for case in cases
    ]
    scaling = {
        name: median(two / one for two, one in zip(pair[0].rates, pair[1].rates, strict=True))
        for name in ("single, full store", "sarm, full store")
        if len(pair := sorted((c for c in cases if c.name == name), key=lambda c: -c.threads)) == 2
    }
    header = ["case", "codec", "threads", "floor images/s", "images/s", "over floor", "goal"]
    header += ["decoded per delivered", "goal"]
    print(format_table(header, [list(result.values()) for result in results]))
    bounds = {case.name: median(case.bounds) for case in cases if case.bounds}
    for name, bound in bounds.items():
        print(f"{name}: decoding alone, image by image at random, reaches {bound:.2f} of the floor")
    for name, times in scaling.items():
        print(f"{name}: two threads give {times:.2f} times one (goal 1.8)")
    return {
        "machine": machine(),
        "results": results,
        "random_decoding_over_floor": bounds,
        "two_threads_over_one": scaling,
    }
