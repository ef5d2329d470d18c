# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robostream.decode import ClipUses, Clock, FrameDecoder, Meter, NextUseCache
from robostream.decode.backends import Decoded, FileRun, PyavBackend
from robostream.errors import VideoFileError
from tests.decode.clips import open_file, uses_of
from tests.decode.conftest import SampleVideo
from tests.parameters import examples, long_except

VideoMaker = Callable[[str], SampleVideo]
FRAME_BYTES = 96 * 64 * 3 // 2
BUDGETS = (0, 5 * FRAME_BYTES, 60 * FRAME_BYTES, 10**8)


class Stage:
    """A decoder, and clips of whole videos, with a step for each batch."""

    def __init__(self, videos: list[SampleVideo], orders: list[list[int]], **how: int) -> None:
        self.videos = videos
        self.clock = Clock()
        self.meter = Meter()
        self.cache = NextUseCache(how["budget"])
        self.decoder = FrameDecoder(self.cache, self.meter, max_waiting=how["max_waiting"])
        files = [open_file(video) for video in videos]
        self.clips = [
            uses_of(np.argsort(order).tolist(), clock=self.clock, file=file)
            for file, order in zip(files, orders, strict=True)
        ]
        for uses in self.clips:
            self.cache.open(uses)

    def deliver(self, step: int, wanted: list[tuple[int, list[int]]], ahead: int = 0) -> None:
        """Build a batch of (clip, frames), decoding some frames ahead, and check it."""
        self.clock.move_to(step)
        requests: list[tuple[ClipUses, list[int]]] = []
        for which, frames in wanted:
            uses = self.clips[which]
            slots = uses.slots
            for frame in frames:
                uses.want(frame)
            missing = {frame for frame in frames if slots[frame] < 0}
            last = max(frames)
            missing.update(uses.missing(last, last + ahead))
            requests.append((uses, sorted(missing)))
        self.decoder.decode(requests)
        for which, frames in wanted:
            out = self.videos[which].slots(len(frames))
            self.decoder.draw(self.clips[which], frames, out)
            np.testing.assert_array_equal(
                out, [self.videos[which].pictures[frame] for frame in frames]
            )
            self.clips[which].now.clear()
        self.decoder.count_evictions()

    def is_waiting(self, which: int) -> bool:
        """Return whether a decoder waits inside a GOP of a clip."""
        return self.clips[which].clip in self.decoder._waiting


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", ["av1_g2", "h264_bframes", "hevc_open_gop", "h264_g250", "depth"])
def test_frames_are_right_in_any_order(clip: VideoMaker, kind: str, budget: int) -> None:
    """Whatever the budget, frames delivered in random order equal the container's."""
    video = clip(kind)
    order = np.random.default_rng(budget).permutation(len(video)).tolist()
    stage = Stage([video], [order], budget=budget, max_waiting=2)
    for step, picture in enumerate(order):
        stage.deliver(step, [(0, [picture])])

    assert stage.clips[0].num_left == 0
    assert stage.meter.images_delivered == len(video)


@pytest.mark.parametrize("kind", ["av1_g2", "h264_g250", "av1_g30"])
def test_frames_in_order_are_decoded_once(clip: VideoMaker, kind: str) -> None:
    """A few frames ahead of delivery, from the first to the last, across the ends of GOPs."""
    video = clip(kind)
    order = list(range(len(video)))
    stage = Stage([video], [order], budget=60 * FRAME_BYTES, max_waiting=2)
    for step in order:
        stage.deliver(step, [(0, [step])], ahead=8 if step % 8 == 0 else 0)

    assert stage.meter.images_decoded == len(video)


@pytest.mark.parametrize("max_waiting", long_except([1, 2, 3], 2))
@pytest.mark.parametrize("budget", long_except(BUDGETS, *BUDGETS[::2]))
def test_decoders_that_wait_are_bounded(clip: VideoMaker, max_waiting: int, budget: int) -> None:
    """With more long GOPs at a time than decoders may wait, frames stay right."""
    video = clip("h264_g250")
    order = list(range(0, 60))
    stage = Stage(
        [video] * 4, [list(range(len(video)))] * 4, budget=budget, max_waiting=max_waiting
    )
    for step in order:
        stage.deliver(step, [(which, [step]) for which in range(4)], ahead=5)

        assert stage.decoder.num_waiting <= max_waiting


def test_a_waiting_decoder_goes_on_where_it_stood(clip: VideoMaker) -> None:
    """With enough decoders, interleaved clips decode each frame of long GOPs once, to the end."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 3, [order] * 3, budget=10**8, max_waiting=3)
    for step in order:
        stage.deliver(step, [(which, [step]) for which in range(3)])

    assert stage.meter.images_decoded == 3 * len(video)


@pytest.mark.parametrize("seed", range(3))
def test_with_room_frames_of_many_long_gops_are_decoded_once(clip: VideoMaker, seed: int) -> None:
    """More clips than decoders may wait, in random order: those that must go finish first."""
    video, rng = clip("h264_g250"), np.random.default_rng(seed)
    frames = [rng.permutation(len(video)).tolist() for _ in range(4)]
    stage = Stage([video] * 4, frames, budget=10**8, max_waiting=1)
    for step, wanted in enumerate(zip(*frames, strict=True)):
        stage.deliver(step, [(which, [frame]) for which, frame in enumerate(wanted)])

    assert stage.decoder.num_waiting <= 1
    assert stage.meter.images_decoded == 4 * len(video)


def test_without_room_a_decoder_that_must_go_decodes_no_more(clip: VideoMaker) -> None:
    """Its frames would replace others, or be dropped."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 2, [order] * 2, budget=5 * FRAME_BYTES, max_waiting=1)
    stage.deliver(0, [(0, [0])], ahead=5)
    stage.deliver(0, [(1, [0])])

    assert not stage.is_waiting(0)
    assert stage.meter.images_decoded == 5 + 1


class FailsAt:
    """A backend for which frames from one number on are damaged."""

    def __init__(self, number: int) -> None:
        self._backend = PyavBackend()
        self._number = number

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield what PyAV decodes, until the damage."""
        for place, number, frame in self._backend.decode(file_runs):
            if number >= self._number:
                raise VideoFileError("damaged")
            yield place, number, frame


def test_a_damaged_frame_ahead_does_not_fail_the_clip_that_needs_a_decoder(
    clip: VideoMaker,
) -> None:
    """The sample that needs the damaged frame raises the error."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 2, [order] * 2, budget=10**8, max_waiting=1)
    stage.decoder = FrameDecoder(stage.cache, stage.meter, backend=FailsAt(9), max_waiting=1)
    stage.deliver(0, [(0, [0])], ahead=2)
    stage.deliver(1, [(1, [1])])

    assert not stage.is_waiting(0)
    stage.deliver(2, [(0, [8])])
    with pytest.raises(VideoFileError, match="damaged"):
        stage.deliver(3, [(0, [9])])


def test_decoders_that_are_done_do_not_displace_those_in_use(clip: VideoMaker) -> None:
    """A clip decodes each frame once, whatever other clips begin and end beside it."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 4, [order] * 4, budget=10**8, max_waiting=2)
    third = len(video) // 3
    for which in range(1, 4):
        for step in range((which - 1) * third, which * third):
            stage.deliver(step, [(0, [step])])
        for step in order:  # its frames still wait when the next one begins
            stage.decoder.decode([(stage.clips[which], [step])])

    assert not any(stage.is_waiting(which) for which in range(1, 4))
    assert stage.meter.images_decoded == 3 * third + 3 * len(video)


def test_a_closed_clip_holds_no_decoder_and_no_frame(clip: VideoMaker) -> None:
    """Other clips can use its slots and its decoder; their own frames stay."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 2, [order] * 2, budget=10**8, max_waiting=2)
    stage.deliver(0, [(0, [0]), (1, [0])], ahead=10)
    closed = stage.clips[0]
    assert max(closed.slots) >= 0
    stage.decoder.close(closed)

    assert not stage.is_waiting(0)
    assert set(closed.slots) == {-1}
    assert stage.is_waiting(1)
    stage.cache.open(closed)
    stage.deliver(1, [(1, [1])])
    stage.deliver(2, [(0, [7])])


@given(
    steps=st.lists(st.lists(st.integers(0, 259), min_size=1, max_size=3), min_size=1, max_size=12),
    budget=st.sampled_from(BUDGETS),
    ahead=st.sampled_from([0, 8, 70]),
)
@example(steps=[[0, 236, 237]], budget=0, ahead=0)
@examples(25)
def test_any_jumps_in_long_gops_are_right(
    clip: VideoMaker, steps: list[list[int]], budget: int, ahead: int
) -> None:
    """Back, forth, across GOPs, windows with repeats: what is drawn is what was asked for."""
    video = clip("h264_g250")
    frame_steps = [[step for step, frames in enumerate(steps) if f in frames] for f in range(260)]
    order = sorted(range(260), key=lambda f: frame_steps[f][0] if frame_steps[f] else 99)
    stage = Stage([video], [order], budget=budget, max_waiting=1)
    uses = stage.clips[0]
    uses.left[:] = [sum(frames.count(f) for frames in steps) for f in range(260)]
    uses.num_left = sum(uses.left)
    for step, frames in enumerate(steps):
        stage.deliver(step, [(0, frames)], ahead=ahead)

    assert stage.clips[0].num_left == 0


def test_a_window_that_repeats_a_frame_copies_it(clip: VideoMaker) -> None:
    """At the end of an episode the last frame fills what lies beyond."""
    video = clip("av1_g2")
    stage = Stage([video], [list(range(48))], budget=0, max_waiting=1)
    stage.clips[0].left[47] = 4
    stage.deliver(0, [(0, [46, 47, 47, 47])])

    assert stage.meter.images_decoded == 2
    assert stage.meter.images_delivered == 4


def test_a_missing_frame_is_reported_with_its_file(clip: VideoMaker) -> None:
    """Drawing what was never decoded is an error, not old memory."""
    stage = Stage([clip("av1_g2")], [list(range(48))], budget=10**8, max_waiting=1)

    with pytest.raises(VideoFileError, match=r"plain\.mp4: the decoder gave no image for frame 5"):
        stage.decoder.draw(stage.clips[0], [5], clip("av1_g2").slots(1))


def test_a_frame_that_is_decoded_again_is_held_once(clip: VideoMaker) -> None:
    """First it is held beside the full cache, then in it; after its delivery, nothing is left."""
    video = clip("av1_g2")
    stage = Stage([video] * 2, [list(range(len(video)))] * 2, budget=FRAME_BYTES, max_waiting=1)
    first, second = stage.clips
    second.left[2] += 1  # it is delivered again later
    stage.decoder.decode([(first, [0])])
    second.want(2)
    stage.decoder.decode([(second, [2])])
    stage.decoder.close(first)
    stage.decoder.decode([(second, [2])])
    assert second.slots[2] >= 0
    stage.decoder.draw(second, [2], video.slots(1))

    assert stage.decoder._uncached == {}
