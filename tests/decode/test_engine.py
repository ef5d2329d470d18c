# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robostream.decode import NEVER, DecodeStatistics, FrameEngine, Want
from robostream.errors import VideoFileError
from robostream.fetch import LocalSource
from tests.decode.conftest import Clip, local_engine
from tests.decode.videos import KINDS

ClipMaker = Callable[[str], Clip]
Ints = np.ndarray

# Nothing kept; a handful of frames; a part of the clip; all of it.
BUDGETS = (0, 60_000, 300_000, 100_000_000)
MAIN_KINDS = (
    "av1_g2",
    "h264_g2",
    "h264_bframes",
    "h264_g250",
    "hevc_closed",
    "hevc_open_gop",
    "depth",
)


class KnownOrder:
    """Next uses of the frames of one file when each is wanted once, in a known order."""

    def __init__(self, order: Ints) -> None:
        self.position_of = np.argsort(order)

    def __call__(self, file: str, frames: Ints, after: int) -> Ints:
        """Return the one use of each frame, if it is still ahead."""
        position = self.position_of[frames]
        return np.where(position > after, position, NEVER)[:, None]


def read_in_order(engine: FrameEngine, clip: Clip, order: Ints) -> None:
    """Read frames one by one and compare each with the container's."""
    for position, frame in enumerate(order.tolist()):
        out = clip.slots(1)
        engine.read(clip.file, [frame], out, position=position)

        np.testing.assert_array_equal(out[0], clip.pictures[frame])


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_is_the_one_the_container_gives(clip: ClipMaker, kind: str) -> None:
    """Read one by one in random order, with nothing kept, every frame is bit for bit right."""
    video = clip(kind)
    order = np.random.default_rng(0).permutation(len(video))
    with local_engine() as engine:
        assert engine.index(video.file).num_frames == len(video)
        read_in_order(engine, video, order)


@pytest.mark.parametrize("kind", MAIN_KINDS)
@pytest.mark.parametrize("budget", BUDGETS[1:])
@pytest.mark.parametrize("foresight", [True, False], ids=["next use", "least recent"])
def test_no_budget_changes_a_frame(
    clip: ClipMaker, kind: str, budget: int, foresight: bool
) -> None:
    """Whatever is kept, evicted and decoded again, the frames stay bit for bit the same."""
    video = clip(kind)
    order = np.random.default_rng(budget).permutation(len(video))
    uses = KnownOrder(order) if foresight else None
    with FrameEngine(LocalSource, store_bytes=budget, next_uses=uses, reorder=0) as engine:
        read_in_order(engine, video, order)


@pytest.mark.parametrize("kind", ["av1_g2", "h264_bframes", "h264_g250"])
def test_a_full_store_decodes_each_frame_once(clip: ClipMaker, kind: str) -> None:
    """With the future known and room for all, nothing is decoded twice or in vain."""
    video = clip(kind)
    order = np.random.default_rng(1).permutation(len(video))
    with FrameEngine(LocalSource, store_bytes=10**8, next_uses=KnownOrder(order)) as engine:
        read_in_order(engine, video, order)
        counts = engine.statistics.summary()

    assert counts["images_decoded"] == counts["images_delivered"] == len(video)
    assert counts["store_hits"] > 0


def test_a_first_frame_costs_a_stretch_and_not_an_episode(clip: ClipMaker) -> None:
    """A cold read decodes about 32 frames of a long file of short GOPs, not all of them."""
    video = clip("h264_bframes")
    order = np.arange(len(video))[::-1]
    with FrameEngine(LocalSource, store_bytes=10**8, next_uses=KnownOrder(order)) as engine:
        engine.read(video.file, [0], video.slots(1), position=0)

        assert engine.statistics.summary()["images_decoded"] <= 36


def test_frames_nobody_will_want_are_not_decoded(clip: ClipMaker) -> None:
    """Frames outside `within`, and frames without a use ahead, are left alone."""
    video = clip("av1_g2")

    def uses(file: str, frames: Ints, after: int) -> Ints:
        assert frames.min() >= 4
        assert frames.max() < 10
        return np.where(frames % 4 == 0, 100 + frames, NEVER)[:, None]

    with FrameEngine(LocalSource, store_bytes=10**8, next_uses=uses) as engine:
        engine.read(video.file, [8], video.slots(1), position=0, within=(4, 10))

        assert engine.statistics.summary()["images_decoded"] == 2


def test_windows_repeat_frames_and_keep_their_order(clip: ClipMaker) -> None:
    """A window is written in the order asked for; a frame asked for twice is decoded once."""
    video = clip("h264_bframes")
    window = [5, 5, 30, 2, 5, 2]
    for budget in (0, 10**8):
        with FrameEngine(LocalSource, store_bytes=budget) as engine:
            out = video.slots(len(window))
            engine.read(video.file, np.array(window), out)

            np.testing.assert_array_equal(out, np.stack([video.pictures[f] for f in window]))


def test_float_pictures_are_divided_exactly(clip: ClipMaker) -> None:
    """float32 slots hold uint8 / 255 as one float32 division, kept or not."""
    video = clip("odd_width")
    with FrameEngine(LocalSource, store_bytes=10**8) as engine:
        for _ in range(2):
            out = video.slots(2, np.float32)
            engine.read(video.file, [7, 9], out)
            wanted = np.stack([video.pictures[7], video.pictures[9]]).astype(np.float32)

            np.testing.assert_array_equal(out, wanted / np.float32(255))


def test_slots_may_lie_anywhere_in_a_batch(clip: ClipMaker) -> None:
    """Pictures are written straight into a view of a larger batch, and nowhere else."""
    video = clip("h264_g2")
    batch = np.zeros((3, 2, 2, *video.pictures[0].shape), np.uint8)
    with local_engine() as engine:
        engine.read(video.file, [4, 11], batch[1, :, 1])

    np.testing.assert_array_equal(batch[1, 0, 1], video.pictures[4])
    np.testing.assert_array_equal(batch[1, 1, 1], video.pictures[11])
    batch[1, :, 1] = 0
    assert not batch.any()


def test_reading_in_order_without_a_plan_decodes_once(clip: ClipMaker) -> None:
    """Where frames are read one after the other, each is decoded once or little more."""
    for kind in ("av1_g2", "h264_g250"):
        video = clip(kind)
        with FrameEngine(LocalSource, store_bytes=10**8) as engine:
            read_in_order(engine, video, np.arange(len(video)))

            assert engine.statistics.summary()["amplification"] < 1.1


def test_random_reads_without_a_plan_gain_from_a_second_visit(clip: ClipMaker) -> None:
    """With room for all, random reads of long GOPs decode each frame at most twice or so."""
    video = clip("h264_g250")
    order = np.random.default_rng(3).permutation(len(video))
    with FrameEngine(LocalSource, store_bytes=10**8) as engine:
        read_in_order(engine, video, order)

        assert engine.statistics.summary()["amplification"] < 2.5


def test_a_store_on_disk_gives_the_same_frames(clip: ClipMaker, tmp_path: Path) -> None:
    """Kept in a file, frames come back the same, and the folder is left empty."""
    video = clip("h264_bframes")
    order = np.random.default_rng(2).permutation(len(video))
    with FrameEngine(LocalSource, store_bytes=200_000, store_folder=tmp_path) as engine:
        read_in_order(engine, video, order)

        assert engine.statistics.summary()["store_hits"] > 0
        assert list(tmp_path.iterdir()) == []


def test_wrong_requests_are_refused(clip: ClipMaker) -> None:
    """Frames that are not there, slots of another shape, and a missing position are errors."""
    video = clip("h264_g2")
    with local_engine() as engine:
        with pytest.raises(IndexError, match="frames 0 to 47; asked for 48"):
            engine.read(video.file, [48], video.slots(1))
        with pytest.raises(IndexError, match="asked for -1"):
            engine.read(video.file, [-1], video.slots(1))
        with pytest.raises(ValueError, match="T=2"):
            engine.read(video.file, [1, 2], video.slots(1))
        with pytest.raises(VideoFileError, match=r"96x64.*asked for \(3, 32, 32\)"):
            engine.read(video.file, [1], np.zeros((1, 3, 32, 32), np.uint8))
        with pytest.raises(VideoFileError, match="uint16"):
            engine.read(video.file, [1], video.slots(1, np.uint16))
    foresight = FrameEngine(LocalSource, store_bytes=0, next_uses=KnownOrder(np.arange(48)))
    with foresight, pytest.raises(ValueError, match="position"):
        foresight.read(video.file, [1], video.slots(1))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there is a VideoFileError with its path."""
    engine = local_engine()
    with engine, pytest.raises(VideoFileError, match=r"absent\.mp4"):
        engine.index(str(tmp_path / "absent.mp4"))


def test_statistics_add_up(clip: ClipMaker) -> None:
    """Engines that share counters add into them, and time is split over what was done."""
    video = clip("av1_g2")
    statistics = DecodeStatistics()
    for _ in range(2):
        with FrameEngine(LocalSource, store_bytes=10**8, statistics=statistics) as engine:
            for frame in (0, 1, 0):
                engine.read(video.file, [frame], video.slots(1))
    counts = statistics.summary()

    assert counts["images_delivered"] == 6
    assert counts["store_hits"] == 2
    assert counts["file_misses"] == 2
    assert counts["file_hits"] == 4
    assert min(counts["fetch_s"], counts["decode_s"], counts["convert_s"], counts["copy_s"]) > 0


def test_a_failed_read_is_counted_too(clip: ClipMaker, tmp_path: Path) -> None:
    """What was decoded before the error counts as decoded, and nothing as delivered."""
    good, bad = clip("h264_g2"), tmp_path / "bad.mp4"
    with local_engine() as engine:
        index = engine.index(good.file)
        at = int(index.positions[40])
        content = bytearray(good.path.read_bytes())
        content[at : at + 100] = bytes(100)
        bad.write_bytes(content)
        with pytest.raises(VideoFileError):
            engine.read_all(
                [Want(good.file, [0], good.slots(1)), Want(str(bad), [40], good.slots(1))]
            )
        counts = engine.statistics.summary()

    assert counts["images_delivered"] == 0
    assert counts["images_decoded"] >= 1


def test_a_group_of_wants_is_served_as_each_alone(clip: ClipMaker) -> None:
    """Frames of several files and sizes, windows, repeats and shared frames in one call."""
    one, two, depth = clip("h264_bframes"), clip("av1_g2"), clip("depth")
    picks = [(one, [3, 4, 3]), (two, [7]), (depth, [0, 5]), (one, [4, 20]), (two, [7, 8])]
    for budget in BUDGETS:
        with FrameEngine(LocalSource, store_bytes=budget) as engine:
            outs = [video.slots(len(frames)) for video, frames in picks]
            engine.read_all(
                [Want(v.file, frames, out) for (v, frames), out in zip(picks, outs, strict=True)]
            )

            for (video, frames), out in zip(picks, outs, strict=True):
                np.testing.assert_array_equal(out, [video.pictures[frame] for frame in frames])
            assert engine.statistics.summary()["images_delivered"] == 10


def test_no_frames_are_no_work(clip: ClipMaker) -> None:
    """An empty want writes nothing and decodes nothing, whatever the budget."""
    video = clip("av1_g2")
    for budget in (0, 10**8):
        with FrameEngine(LocalSource, store_bytes=budget) as engine:
            engine.read(video.file, [], video.slots(0))
            engine.read_all([])

            assert engine.statistics.summary()["images_decoded"] == 0


@pytest.mark.parametrize("budget", [0, 10**7])
def test_a_bad_want_in_a_group_leaves_nothing_behind(
    clip: ClipMaker, tmp_path: Path, budget: int
) -> None:
    """The error names its file; the engine goes on serving, and every slot can be used again."""
    good = clip("av1_g2")
    bad = tmp_path / "bad.mp4"
    content = bytearray(good.path.read_bytes())
    at = content.index(b"mdat") + 40
    content[at : at + 4000] = bytes(4000)
    bad.write_bytes(content)
    with FrameEngine(LocalSource, store_bytes=budget) as engine:
        wants = [
            Want(good.file, [0], good.slots(1)),
            Want(str(bad), [1], good.slots(1)),
            Want(good.file, [9], good.slots(1)),
        ]
        for _ in range(3):
            with pytest.raises(VideoFileError, match=r"bad\.mp4"):
                engine.read_all(wants)
        read_in_order(engine, good, np.arange(len(good)))


def test_a_group_keeps_to_the_limit_of_open_files(clip: ClipMaker, tmp_path: Path) -> None:
    """However many files a group wants, no more than `max_files` are open at a time."""
    video = clip("h264_g2")
    copies = [tmp_path / f"{number}.mp4" for number in range(12)]
    for copy in copies:
        copy.write_bytes(video.path.read_bytes())
    most = 0

    class Watched(LocalSource):
        def read(self, start: int, stop: int) -> bytes:
            nonlocal most
            links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
            most = max(most, sum(link.startswith(str(tmp_path)) for link in links))
            return super().read(start, stop)

    with FrameEngine(Watched, store_bytes=10**7, max_files=3) as engine:
        engine.read_all([Want(str(copy), [5], video.slots(1)) for copy in copies])

    assert 1 <= most <= 4


def test_what_is_used_up_is_kept_for_another_epoch(clip: ClipMaker) -> None:
    """With room for all, the second time round nothing is decoded; not so if told to forget."""
    video = clip("h264_g250")
    order = np.random.default_rng(0).permutation(len(video))
    for keep_used in (True, False):
        with FrameEngine(
            LocalSource,
            store_bytes=10**8,
            next_uses=KnownOrder(np.append(order, order + 10**6)),
            keep_used=keep_used,
        ) as engine:
            read_in_order(engine, video, order)
            before = engine.statistics.summary()["images_decoded"]
            engine.read(video.file, [int(order[0])], video.slots(1), position=10**6)

            assert (engine.statistics.summary()["images_decoded"] == before) == keep_used
