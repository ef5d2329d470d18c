# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import FrameEngine
from robostream.errors import VideoFileError
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo, local_engine
from tests.decode.videos import KINDS
from tests.parameters import examples, long_except

VideoMaker = Callable[[str], SampleVideo]
Ints = np.ndarray

# A handful of frames; a part of the clip; all of it.
BUDGETS = (60_000, 300_000, 100_000_000)
MAIN_KINDS = (
    "av1_g2",
    "h264_g2",
    "h264_bframes",
    "h264_g250",
    "hevc_closed",
    "hevc_open_gop",
    "depth",
)


def read_one_by_one(engine: FrameEngine, clip: SampleVideo, order: Ints) -> None:
    """Read frames one by one and compare each with the container's."""
    for frame in order.tolist():
        out = clip.slots(1)
        engine.read(clip.file, [frame], out)

        np.testing.assert_array_equal(out[0], clip.pictures[frame])


def damaged_copy(clip: SampleVideo, path: Path, packet: int) -> Path:
    """Write a copy of a file with the middle of a packet set to zero."""
    with local_engine() as engine:
        index = engine.files.get(clip.file).index
    content = bytearray(clip.path.read_bytes())
    at, size = int(index.byte_offsets[packet]), int(index.sizes[packet])
    content[at : at + size] = bytes(size)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_is_the_one_the_container_gives(clip: VideoMaker, kind: str) -> None:
    """Read one by one in random order, with nothing kept, every frame is bit for bit right."""
    video = clip(kind)
    order = np.random.default_rng(0).permutation(len(video))
    with local_engine() as engine:
        assert engine.files.get(video.file).index.num_frames == len(video)
        read_one_by_one(engine, video, order)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_frame_is_the_one_that_was_decoded(clip: VideoMaker, kind: str) -> None:
    """With room for all, the second time round nothing is decoded and every frame is right."""
    video = clip(kind)
    order = np.random.default_rng(1).permutation(len(video))
    with local_engine(budget_bytes=BUDGETS[-1]) as engine:
        read_one_by_one(engine, video, order)
        before = engine.statistics.summary()["images_decoded"]
        read_one_by_one(engine, video, order)

        assert engine.statistics.summary()["images_decoded"] == before


@pytest.mark.parametrize("kind", MAIN_KINDS)
@pytest.mark.parametrize("budget", long_except(BUDGETS, BUDGETS[0], BUDGETS[-1]))
@pytest.mark.parametrize("is_random", long_except([True, False], True))
def test_frames_are_right_whatever_is_kept(
    clip: VideoMaker, kind: str, budget: int, is_random: bool
) -> None:
    """With any budget, in any order, frames stay bit for bit the same."""
    video = clip(kind)
    order = np.arange(len(video))
    if is_random:
        np.random.default_rng(budget).shuffle(order)
    with local_engine(budget_bytes=budget) as engine:
        read_one_by_one(engine, video, order)


@given(
    budget=st.sampled_from([0, *BUDGETS]),
    windows=st.lists(st.lists(st.integers(0, 47), max_size=6), max_size=12),
)
@examples(30)
def test_windows_repeat_frames_and_keep_their_order(
    clip: VideoMaker, budget: int, windows: list[list[int]]
) -> None:
    """A window is written in the order asked for; repeats are copies; an empty one is no work."""
    video = clip("h264_bframes")
    with local_engine(budget_bytes=budget) as engine:
        for window in windows:
            out = video.slots(len(window))
            engine.read(video.file, np.array(window, np.int64), out)
            wanted = [video.pictures[frame] for frame in window]

            np.testing.assert_array_equal(out, np.array(wanted, np.uint8).reshape(out.shape))
        counts = engine.statistics.summary()

    assert counts["images_delivered"] == sum(map(len, windows))


def test_a_frame_asked_for_twice_is_decoded_once(clip: VideoMaker) -> None:
    """Repeats in one window cost a copy, also with nothing kept."""
    video = clip("av1_g2")
    with local_engine() as engine:
        engine.read(video.file, [4, 4, 6, 4], video.slots(4))

        assert engine.statistics.summary()["images_decoded"] == 2


def test_pictures_of_several_sizes_share_a_small_budget(clip: VideoMaker) -> None:
    """Depth and colour, large and small, wide and odd, evict each other and stay right."""
    videos = [clip(kind) for kind in ("h264_g2", "odd_width", "av1_small", "depth", "444")]
    rng = np.random.default_rng(0)
    for budget in (15_000, 40_000, 200_000):
        with local_engine(budget_bytes=budget) as engine:
            for _ in range(200):
                video = videos[rng.integers(len(videos))]
                frame = int(rng.integers(12))
                read_one_by_one(engine, video, np.array([frame]))

            assert engine.statistics.summary()["picture_evictions"] > 50


def test_a_size_that_comes_late_gets_all_the_room(clip: VideoMaker) -> None:
    """Pictures that are not read any more are dropped for pictures of another size."""
    first, second = clip("h264_g2"), clip("odd_width")
    budget = 60 * 96 * 64 * 3 // 2
    with local_engine(budget_bytes=budget) as engine:
        for video in (first, second):
            read_one_by_one(engine, video, np.arange(len(video)))
            before = engine.statistics.summary()["images_decoded"]
            read_one_by_one(engine, video, np.arange(len(video)))

            assert engine.statistics.summary()["images_decoded"] == before


def test_float_pictures_are_divided_exactly(clip: VideoMaker) -> None:
    """float32 slots hold uint8 / 255 as one float32 division, kept or not."""
    video = clip("odd_width")
    with local_engine(budget_bytes=10**8) as engine:
        for _ in range(2):
            out = video.slots(2, np.float32)
            engine.read(video.file, [7, 9], out)
            wanted = np.stack([video.pictures[7], video.pictures[9]]).astype(np.float32)

            np.testing.assert_array_equal(out, wanted / np.float32(255))


def test_slots_may_lie_anywhere_in_a_batch(clip: VideoMaker) -> None:
    """Pictures are written straight into a view of a larger batch, and nowhere else."""
    video = clip("h264_g2")
    batch = np.zeros((3, 2, 2, *video.pictures[0].shape), np.uint8)
    with local_engine() as engine:
        engine.read(video.file, [4, 11], batch[1, :, 1])

    np.testing.assert_array_equal(batch[1, 0, 1], video.pictures[4])
    np.testing.assert_array_equal(batch[1, 1, 1], video.pictures[11])
    batch[1, :, 1] = 0
    assert not batch.any()


@pytest.mark.parametrize("kind", ["av1_g2", "h264_bframes", "h264_g250"])
def test_reading_in_order_decodes_about_once(clip: VideoMaker, kind: str) -> None:
    """Where frames are read one after the other, each is decoded once or little more."""
    video = clip(kind)
    with local_engine(budget_bytes=10**8) as engine:
        read_one_by_one(engine, video, np.arange(len(video)))

        assert engine.statistics.summary()["amplification"] < 1.15


def test_cameras_read_in_order_side_by_side_do_not_evict_each_other(clip: VideoMaker) -> None:
    """Each of a sample's cameras gets a stretch that leaves room for the others'."""
    videos = [clip(kind) for kind in ("av1_g2", "h264_g2", "h264_bframes", "hevc_closed")]
    with local_engine(budget_bytes=80 * 96 * 64 * 3 // 2) as engine:
        for frame in range(48):
            for video in videos:
                read_one_by_one(engine, video, np.array([frame]))

        assert engine.statistics.summary()["amplification"] < 2


def test_windows_read_in_order_decode_about_once(clip: VideoMaker) -> None:
    """Windows that reach ahead and back are read in order too, and decode hardly more."""
    video = clip("av1_g2")
    offsets = np.array([-9, 0, 12])
    with local_engine(budget_bytes=10**8) as engine:
        for frame in range(48):
            window = np.clip(frame + offsets, 0, 47)
            out = video.slots(3)
            engine.read(video.file, window, out)
            np.testing.assert_array_equal(out, np.stack(video.pictures)[window])

        assert engine.statistics.summary()["images_decoded"] < 1.3 * 48


def test_random_reads_decode_no_more_than_they_must(clip: VideoMaker) -> None:
    """Frames of short GOPs, wanted in no order, are not taken for a beginning of an order."""
    video = clip("av1_g2")
    rng = np.random.default_rng(0)
    with local_engine(budget_bytes=12 * 96 * 64 * 3 // 2) as engine:
        read_one_by_one(engine, video, rng.integers(0, 48, 400))

        assert engine.statistics.summary()["amplification"] < 1.6


def test_random_reads_gain_from_a_second_visit(clip: VideoMaker) -> None:
    """With room for all, random reads of long GOPs decode each frame at most twice or so."""
    video = clip("h264_g250")
    order = np.random.default_rng(3).permutation(len(video))
    with local_engine(budget_bytes=10**8) as engine:
        read_one_by_one(engine, video, order)

        assert engine.statistics.summary()["amplification"] < 2.5


def test_frames_nobody_may_want_are_not_decoded(clip: VideoMaker) -> None:
    """Reading in order stops ahead of what `within` leaves out, another episode say."""
    video = clip("av1_g2")
    with local_engine(budget_bytes=10**8) as engine:
        for frame in range(4, 12):
            engine.read(video.file, [frame], video.slots(1), within=(4, 12))

        assert engine.statistics.summary()["images_decoded"] <= 8 + 3


def test_wrong_requests_are_refused(clip: VideoMaker) -> None:
    """Frames that are not there and slots of another shape are errors, kept or not."""
    video = clip("h264_g2")
    for budget in (0, 10**8):
        with local_engine(budget_bytes=budget) as engine:
            engine.read(video.file, [1], video.slots(1))
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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is not there is a VideoFileError with its path."""
    with local_engine() as engine, pytest.raises(VideoFileError, match=r"absent\.mp4"):
        engine.files.get(str(tmp_path / "absent.mp4"))


def test_a_damaged_run_keeps_nothing(clip: VideoMaker, tmp_path: Path) -> None:
    """What was decoded before an error is not trusted: asked for again, it is decoded again."""
    video = clip("h264_g250")
    bad = str(damaged_copy(video, tmp_path / "bad.mp4", 40))
    with local_engine(budget_bytes=10**8) as engine:
        with pytest.raises(VideoFileError, match=r"bad\.mp4"):
            engine.read(bad, [60], video.slots(1))
        assert engine.statistics.summary()["images_decoded"] > 10
        for _ in range(2):
            out = video.slots(1)
            engine.read(bad, [0], out)
            np.testing.assert_array_equal(out[0], video.pictures[0])
        read_one_by_one(engine, video, np.array([60, 0, 100]))
        counts = engine.statistics.summary()

    assert counts["picture_hits"] == 2
    assert counts["images_delivered"] == 5


def test_a_frame_that_cannot_be_kept_is_not_taken_for_kept(
    clip: VideoMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If putting a picture away fails, its unfilled memory is never drawn."""
    video = clip("h264_g2")
    with local_engine(budget_bytes=10**8) as engine:
        with monkeypatch.context() as patch:

            def fail(*_: object, **__: object) -> None:
                raise VideoFileError("no such colours")

            patch.setattr(engine._decoder._renderer, "pack", fail)
            with pytest.raises(VideoFileError, match="no such colours"):
                engine.read(video.file, [1], video.slots(1))
        read_one_by_one(engine, video, np.array([1, 0, 1]))


def test_a_failed_read_is_counted_too(clip: VideoMaker, tmp_path: Path) -> None:
    """What was decoded before the error counts as decoded, and nothing as delivered."""
    video = clip("h264_g250")
    bad = str(damaged_copy(video, tmp_path / "bad.mp4", 40))
    with local_engine() as engine:
        with pytest.raises(VideoFileError):
            engine.read(bad, [60], video.slots(1))
        counts = engine.statistics.summary()

    assert counts["images_delivered"] == 0
    assert counts["images_decoded"] >= 1
    assert counts["decode_s"] > 0


def test_statistics_add_up(clip: VideoMaker) -> None:
    """What was delivered, found and opened is counted, and time is split over what was done."""
    video = clip("av1_g2")
    with local_engine(budget_bytes=10**8) as engine:
        for frame in (0, 1, 0):
            engine.read(video.file, [frame], video.slots(1))
        counts = engine.statistics.summary()

    assert counts["images_delivered"] == 3
    assert counts["images_decoded"] == 3
    assert counts["picture_hits"] == 1
    assert counts["file_misses"] == 1
    assert counts["file_hits"] == 2
    assert min(counts["fetch_s"], counts["decode_s"], counts["convert_s"], counts["copy_s"]) > 0


def test_an_engine_keeps_to_its_limit_of_open_files(clip: VideoMaker, tmp_path: Path) -> None:
    """However many files are read, no more than `max_files` are open at a time."""
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

    with FrameEngine(Watched, budget_bytes=10**7, max_files=3) as engine:
        for copy in copies:
            engine.read(str(copy), [5], video.slots(1))

    assert 1 <= most <= 4


def test_a_closed_engine_holds_nothing(clip: VideoMaker) -> None:
    """Files and pictures are let go; counts can still be asked for."""
    video = clip("h264_g2")
    with local_engine(budget_bytes=10**8) as engine:
        engine.read(video.file, [5], video.slots(1))

    assert len(engine.files) == 0
    assert engine._cache._frames.weight == 0
    assert engine.statistics.summary()["images_delivered"] == 1


@pytest.mark.parametrize("budget", long_except([0, *BUDGETS], 0, BUDGETS[-1]))
@pytest.mark.parametrize("kind", ["av1_g2", "h264_g250", "ten_bit", "odd_width", "444", "depth"])
@pytest.mark.parametrize("size", long_except([(32, 32), (45, 61), (80, 128)], (45, 61), (80, 128)))
def test_resized_frames_are_the_same_kept_or_not(
    clip: VideoMaker, kind: str, budget: int, size: tuple[int, int]
) -> None:
    """In any order and with any budget, a resized frame is what it is decoded by itself."""
    video = clip(kind)
    frames = np.random.default_rng(budget).integers(0, len(video), 24).tolist()
    channels, *_ = video.pictures[0].shape
    found = np.zeros((len(frames), channels, *size), video.pictures[0].dtype)
    alone = np.zeros_like(found)
    with local_engine(budget_bytes=budget) as engine:
        for row, frame in enumerate(frames):
            engine.read(video.file, [frame], found[row : row + 1], resize=True)
        kept_bytes = engine._cache._frames.weight
    with local_engine() as engine:
        engine.read(video.file, frames, alone, resize=True)

    np.testing.assert_array_equal(found, alone)
    assert found.min() < found.max()
    assert kept_bytes <= min(budget, len(video) * (3 * size[0] * size[1] + 64))


def test_a_frame_of_another_size_than_its_slot_is_refused(clip: VideoMaker) -> None:
    """Nothing is resized that nobody asked to resize."""
    with local_engine() as engine, pytest.raises(VideoFileError, match="96x64"):
        engine.read(clip("av1_g2").file, [0], np.zeros((1, 3, 32, 32), np.uint8))
