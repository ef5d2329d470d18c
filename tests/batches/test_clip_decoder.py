# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robostream.batches import PrivateFrameCache
from robostream.batches.clip import Clip, Clock
from robostream.batches.clip_decoder import ClipDecoder, tools_on_cpu
from robostream.decode import Meter
from robostream.errors import VideoFileError
from tests.batches.clips import clip_of, open_file
from tests.decode.conftest import SampleVideo
from tests.parameters import examples, long_except

VideoMaker = Callable[[str], SampleVideo]
FRAME_BYTES = 96 * 64 * 3 // 2
BUDGETS = (0, 5 * FRAME_BYTES, 60 * FRAME_BYTES, 10**8)


class Stage:
    """A projector, and reels of whole clips, with a step for each batch."""

    def __init__(self, clips: list[Clip], orders: list[list[int]], **how: int) -> None:
        self.clips = clips
        self.clock = Clock()
        self.meter = Meter()
        self.projector = ClipDecoder(
            tools_on_cpu(PrivateFrameCache(how["budget"])),
            self.meter,
            max_decodings=how["max_decodings"],
            sizes=[None],
            parcels=[None],
        )
        files = [open_file(clip) for clip in clips]
        self.reels = [
            clip_of(np.argsort(order).tolist(), clock=self.clock, file=file)
            for file, order in zip(files, orders, strict=True)
        ]

    def deliver(self, step: int, wanted: list[tuple[int, list[int]]], ahead: int = 0) -> None:
        """Build a batch of (reel, pictures), decoding some pictures ahead, and check it."""
        self.clock.step = step
        requests: list[tuple[Clip, list[int]]] = []
        for which, pictures in wanted:
            reel = self.reels[which]
            for picture in pictures:
                reel.now[picture] = reel.now.get(picture, 0) + 1
            missing = {p for p in pictures if reel.slots[p] < 0}
            last = max(pictures)
            missing.update(reel.missing(last, last + ahead))
            requests.append((reel, sorted(missing)))
        self.projector.decode(requests)
        for which, pictures in wanted:
            out = self.clips[which].slots(len(pictures))
            self.projector.draw(self.reels[which], pictures, out)
            np.testing.assert_array_equal(
                out, [self.clips[which].pictures[picture] for picture in pictures]
            )
            self.reels[which].now.clear()
        self.projector.end_batch()


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", ["av1_g2", "h264_bframes", "hevc_open_gop", "h264_g250", "depth"])
def test_pictures_are_right_in_any_order(clip: VideoMaker, kind: str, budget: int) -> None:
    """Whatever the budget, frames delivered in random order equal the container's."""
    video = clip(kind)
    order = np.random.default_rng(budget).permutation(len(video)).tolist()
    stage = Stage([video], [order], budget=budget, max_decodings=2)
    for step, picture in enumerate(order):
        stage.deliver(step, [(0, [picture])])

    assert stage.reels[0].waiting == 0
    assert stage.meter.images_delivered == len(video)


@pytest.mark.parametrize("kind", ["av1_g2", "h264_g250", "av1_g30"])
def test_pictures_in_order_are_decoded_once(clip: VideoMaker, kind: str) -> None:
    """A few frames ahead of delivery, from the first to the last, across the ends of GOPs."""
    video = clip(kind)
    order = list(range(len(video)))
    stage = Stage([video], [order], budget=60 * FRAME_BYTES, max_decodings=2)
    for step in order:
        stage.deliver(step, [(0, [step])], ahead=8 if step % 8 == 0 else 0)

    assert stage.meter.images_decoded == len(video)


@pytest.mark.parametrize("max_decodings", long_except([1, 2, 3], 2))
@pytest.mark.parametrize("budget", long_except(BUDGETS, *BUDGETS[::2]))
def test_decoders_that_wait_are_bounded(clip: VideoMaker, max_decodings: int, budget: int) -> None:
    """With more long GOPs at a time than decoders may wait, pictures stay right."""
    video = clip("h264_g250")
    order = list(range(0, 60))
    stage = Stage(
        [video] * 4, [list(range(len(video)))] * 4, budget=budget, max_decodings=max_decodings
    )
    for step in order:
        stage.deliver(step, [(which, [step]) for which in range(4)], ahead=5)
        decoding = [reel for reel in stage.reels if reel.decoding is not None]

        assert len(decoding) <= max_decodings


def test_a_waiting_decoder_goes_on_where_it_stood(clip: VideoMaker) -> None:
    """With enough decoders, interleaved reels decode each frame of long GOPs once, to the end."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 3, [order] * 3, budget=10**8, max_decodings=3)
    for step in order:
        stage.deliver(step, [(which, [step]) for which in range(3)])

    assert stage.meter.images_decoded == 3 * len(video)


def test_decoders_that_are_done_do_not_displace_those_in_use(clip: VideoMaker) -> None:
    """A reel decodes each frame once, whatever other reels begin and end beside it."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 4, [order] * 4, budget=10**8, max_decodings=2)
    third = len(video) // 3
    for which in range(1, 4):
        for step in range((which - 1) * third, which * third):
            stage.deliver(step, [(0, [step])])
        for step in order:  # its pictures still wait when the next one begins
            stage.projector.decode([(stage.reels[which], [step])])

    assert all(reel.decoding is None for reel in stage.reels[1:])
    assert stage.meter.images_decoded == 3 * third + 3 * len(video)


def test_a_closed_reel_holds_no_decoder_and_no_picture(clip: VideoMaker) -> None:
    """Other reels can use its slots and its decoder; their own pictures stay."""
    video = clip("h264_g250")
    order = list(range(len(video)))
    stage = Stage([video] * 2, [order] * 2, budget=10**8, max_decodings=2)
    stage.deliver(0, [(0, [0]), (1, [0])], ahead=10)
    stage.projector.close(stage.reels[0])

    assert stage.reels[0].decoding is None
    assert set(stage.reels[0].slots) == {-1}
    assert stage.reels[1].decoding is not None
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
    reel_steps = [
        [step for step, pictures in enumerate(steps) if p in pictures] for p in range(260)
    ]
    order = sorted(range(260), key=lambda p: reel_steps[p][0] if reel_steps[p] else 99)
    stage = Stage([video], [order], budget=budget, max_decodings=1)
    for reel in stage.reels:
        reel.left = [sum(pictures.count(p) for pictures in steps) for p in range(260)]
        reel.waiting = sum(reel.left)
    for step, pictures in enumerate(steps):
        stage.deliver(step, [(0, pictures)], ahead=ahead)

    assert stage.reels[0].waiting == 0


def test_a_window_that_repeats_a_picture_copies_it(clip: VideoMaker) -> None:
    """At the end of an episode the last picture fills what lies beyond."""
    video = clip("av1_g2")
    stage = Stage([video], [list(range(48))], budget=0, max_decodings=1)
    stage.reels[0].left[47] = 4
    stage.deliver(0, [(0, [46, 47, 47, 47])])

    assert stage.meter.images_decoded == 2
    assert stage.meter.images_delivered == 4


def test_a_picture_that_did_not_come_is_said_with_its_file(clip: VideoMaker) -> None:
    """Drawing what was never decoded is an error, not old memory."""
    stage = Stage([clip("av1_g2")], [list(range(48))], budget=10**8, max_decodings=1)

    with pytest.raises(
        VideoFileError, match=r"plain\.mp4: the decoder gave no picture for frame 5"
    ):
        stage.projector.draw(stage.reels[0], [5], clip("av1_g2").slots(1))
