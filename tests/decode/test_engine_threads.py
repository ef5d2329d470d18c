# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import numpy as np
import pytest

from robostream.decode import NEVER, FrameEngine
from robostream.decode.backend import Piece
from robostream.decode.pyav_backend import PyavBackend
from robostream.decode.runs import Run
from robostream.errors import VideoFileError
from robostream.fetch import LocalSource
from tests.decode.conftest import Clip

ClipMaker = Callable[[str], Clip]
Ints = np.ndarray


class WatchedBackend:
    """PyAV, with a count of the runs in progress and a pause in which others may come in."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._inner = PyavBackend()
        self._pause = threading.Event()

    def decode(self, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, av.VideoFrame]]:
        """Yield what PyAV yields, a little later."""
        self.runs += [piece.run for piece in pieces]
        self._pause.wait(0.05)
        yield from self._inner.decode(pieces)


def windows_of(count: int, samples: Ints) -> Ints:
    """Return the frames of a window of four steps per sample, kept inside the clip."""
    return np.clip(samples[:, None] + np.array([-9, -6, -3, 0]), 0, count - 1)


def uses_of(count: int, samples: Ints) -> Callable[[str, Ints, int], Ints]:
    """Return next uses for windows over a clip, samples served in the order given."""
    uses: dict[int, list[int]] = {frame: [] for frame in range(count)}
    for position, window in enumerate(windows_of(count, samples)):
        for frame in sorted(set(window.tolist())):
            uses[frame].append(position)

    def look_up(file: str, frames: Ints, after: int) -> Ints:
        rows = np.full((len(frames), 5), NEVER)
        for row, frame in zip(rows, frames.tolist(), strict=True):
            ahead = [position for position in uses[frame] if position > after][:5]
            row[: len(ahead)] = ahead
        return rows

    return look_up


def test_two_threads_do_not_decode_the_same_stretch(clip: ClipMaker) -> None:
    """Threads that want frames of one stretch at once share one decoding of it."""
    video = clip("h264_bframes")
    backend = WatchedBackend()
    samples = np.arange(24)
    engine = FrameEngine(
        LocalSource, store_bytes=10**8, backend=backend, next_uses=uses_of(48, samples)
    )

    def read(frame: int) -> bool:
        out = video.slots(1)
        engine.read(video.file, [frame], out, position=0)
        return np.array_equal(out[0], video.pictures[frame])

    with engine, ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(0, 12, 2)))

    assert len(backend.runs) == 1


@pytest.mark.parametrize("budget", [0, 120_000, 10**8])
@pytest.mark.parametrize("foresight", [True, False], ids=["next use", "least recent"])
def test_threads_fill_slots_of_a_batch(clip: ClipMaker, budget: int, foresight: bool) -> None:
    """Windows read by many threads in no strict order are right, whatever is kept."""
    videos = [clip(kind) for kind in ("av1_g2", "h264_bframes", "hevc_open_gop")]
    samples = np.random.default_rng(budget).permutation(48)
    windows = windows_of(48, samples)
    uses = uses_of(48, samples) if foresight else None
    batch = [video.slots(48 * 4).reshape(48, 4, *video.pictures[0].shape) for video in videos]
    engine = FrameEngine(LocalSource, store_bytes=budget, next_uses=uses, reorder=8)

    def read(position: int) -> None:
        for video, out in zip(videos, batch, strict=True):
            engine.read(video.file, windows[position], out[position], position=position)

    with engine, ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(48)))
        counts = engine.statistics.summary()
    for video, out in zip(videos, batch, strict=True):
        np.testing.assert_array_equal(out, np.stack(video.pictures)[windows])

    assert counts["images_delivered"] == 48 * 4 * 3
    if budget == 10**8 and foresight:
        # Each frame once; the open GOP decodes the key picture after a stretch with it.
        assert counts["images_decoded"] <= 48 * 3 + 4


def test_an_error_reaches_every_thread_that_wanted_the_frames(
    clip: ClipMaker, tmp_path: Path
) -> None:
    """Threads that wait for a decoding that fails see its error too; none waits for ever."""
    content = bytearray(clip("h264_g250").path.read_bytes())
    content[2000:20000] = bytes(18000)
    path = tmp_path / "damaged.mp4"
    path.write_bytes(content)
    engine = FrameEngine(LocalSource, store_bytes=10**8, backend=WatchedBackend())

    def read(frame: int) -> type | None:
        try:
            engine.read(str(path), [frame], np.zeros((1, 3, 64, 96), np.uint8))
        except VideoFileError as error:
            return type(error)
        return None

    with engine, ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(read, (200, 210, 220, 230)))

    assert outcomes == [VideoFileError] * 4
