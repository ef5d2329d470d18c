# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import (
    Clip,
    ClipUses,
    Clock,
    DecodedFrame,
    Deliveries,
    FrameDecoder,
    FrameLayout,
    Meter,
    PackedFrame,
    SharedFrameCache,
    SharedFrameLayout,
    frame_layout,
)
from tests.decode.clips import open_file, uses_of
from tests.decode.conftest import SampleVideo

VideoMaker = Callable[[str], SampleVideo]
WIDE = frame_layout("yuv420p", 96, 64, 2, 0)
NARROW = frame_layout("rgb", 32, 32, 0, 0)
DEPTH = frame_layout("depth", 16, 16, 0, 0)
# Episodes 3, 7 and 9 of 5, 4 and 6 frames; the third camera is not cached.
SHAPE = SharedFrameLayout(
    episodes=np.array([3, 7, 9]),
    cameras=("wide", "narrow", "unkept"),
    starts=np.array([0, 5, 9, 15]),
    sizes=((96, 64), (32, 32), (16, 16)),
    slot_bytes=(WIDE.nbytes, NARROW.nbytes, 0),
)
LENGTHS = {3: 5, 7: 4, 9: 6}


def new_memory(shape: SharedFrameLayout) -> npt.NDArray[np.uint8]:
    """Return memory for the frames of a selection."""
    return np.zeros(shape.nbytes, np.uint8)


def mapped(path: Path, shape: SharedFrameLayout) -> npt.NDArray[np.uint8]:
    """Return the memory of a file that several processes map."""
    return np.memmap(path, np.uint8, "r+", shape=(shape.nbytes,))


def put(cache: SharedFrameCache, uses: ClipUses, frame: int, layout: FrameLayout) -> bool:
    """Cache a frame filled with a value of its own; return whether it got in."""

    def pack(_: DecodedFrame, packed: PackedFrame) -> None:
        packed.content[:] = value_of(uses.clip, frame)

    return cache.add(uses, frame, DecodedFrame(layout, ()), pack)


def value_of(clip: Clip, frame: int) -> int:
    """Return what a frame is filled with."""
    return 10 + clip.camera * 100 + clip.episode * 7 + frame


def episode_of(cache: SharedFrameCache, camera: int, episode: int) -> ClipUses:
    """Return an open clip of a whole episode."""
    uses = uses_of([0] * LENGTHS[episode], camera=camera, episode=episode)
    cache.open(uses)
    return uses


@given(
    order=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(sorted(LENGTHS)), st.integers(0, 3)),
        max_size=30,
    )
)
def test_every_frame_has_a_slot_of_its_own(order: list[tuple[int, int, int]]) -> None:
    """Whatever is put in, in whatever order, another view finds just that, and right."""
    memory = new_memory(SHAPE)
    writer = SharedFrameCache(memory, SHAPE)
    for camera, episode, frame in order:
        assert put(writer, episode_of(writer, camera, episode), frame, (WIDE, NARROW)[camera])
    reader = SharedFrameCache(memory, SHAPE)

    for camera in (0, 1):
        for episode in LENGTHS:
            uses = episode_of(reader, camera, episode)
            clip, slots = uses.clip, uses.slots
            found = {frame for frame, slot in enumerate(slots) if slot >= 0}
            assert found == {f for c, e, f in order if (c, e) == (camera, episode)}
            for frame in found:
                (packed,) = reader.packed(clip, [slots[frame]])
                assert np.all(packed.content == value_of(clip, frame))
                assert packed.layout is (WIDE, NARROW)[camera]


def test_a_clip_of_part_of_an_episode_finds_its_frames() -> None:
    """Frames lie by their number in the episode, wherever a clip begins."""
    cache = SharedFrameCache(new_memory(SHAPE), SHAPE)
    for frame in range(6):
        put(cache, episode_of(cache, 0, 9), frame, WIDE)
    whole = episode_of(cache, 0, 9)
    part = ClipUses(
        Clip(whole.clip.file, np.arange(6)[2:5], 0, 9, first=2),
        Clock(),
        Deliveries(np.array([2, 4]), np.array([0, 0])),
        np.zeros(1, np.int64),
    )
    cache.open(part)

    assert part.slots == list(whole.slots)[2:5]


def test_frames_of_other_sizes_are_not_cached() -> None:
    """Slots are cut for the declared size; a camera without slots caches nothing."""
    cache = SharedFrameCache(new_memory(SHAPE), SHAPE)

    assert not put(cache, episode_of(cache, 0, 3), 0, NARROW)
    assert not put(cache, episode_of(cache, 1, 3), 0, WIDE)
    assert not put(cache, episode_of(cache, 2, 3), 0, DEPTH)
    assert episode_of(cache, 0, 3).slots == [-1] * 5


def test_a_frame_is_seen_once_it_is_written() -> None:
    """While it is being written, only half of a frame may be in its memory."""
    memory = new_memory(SHAPE)
    one, other = SharedFrameCache(memory, SHAPE), SharedFrameCache(memory, SHAPE)
    uses = episode_of(one, 0, 7)

    def pack(_: DecodedFrame, packed: PackedFrame) -> None:
        packed.content[:] = 1
        assert episode_of(other, 0, 7).slots == [-1] * 4

    assert one.add(uses, 1, DecodedFrame(WIDE, ()), pack)
    slot = uses.slots[1]

    assert slot >= 0
    assert episode_of(other, 0, 7).slots == [-1, slot, -1, -1]


@pytest.mark.parametrize("kind", ["yuv420p", "yuvj420p", "rgb", "depth"])
@pytest.mark.parametrize("colours", [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_all_processes_know_the_layout_of_a_frame(kind: str, colours: tuple[int, int]) -> None:
    """Format, colour space and range come back as the very layout they were."""
    layout = frame_layout(kind, 96, 64, *colours)
    shape = SharedFrameLayout(
        np.array([0]), ("wide",), np.array([0, 5]), ((96, 64),), (layout.nbytes,)
    )
    memory = new_memory(shape)
    writer = SharedFrameCache(memory, shape)
    writes = uses_of([0] * 5)
    writer.open(writes)
    put(writer, writes, 3, layout)
    reader, reads = SharedFrameCache(memory, shape), uses_of([0] * 5)
    reader.open(reads)
    (packed,) = reader.packed(reads.clip, [reads.slots[3]])

    assert packed.layout is layout


def decode_half(path: Path, shape: SharedFrameLayout, video: SampleVideo, half: int) -> None:
    """Decode every other frame of a video into shared memory, in a process of its own."""
    cache = SharedFrameCache(mapped(path, shape), shape)
    uses = uses_of([0] * len(video), file=open_file(video))
    cache.open(uses)
    FrameDecoder(cache, Meter()).decode([(uses, list(range(half, len(video), 2)))])


def test_processes_see_each_others_frames(clip: VideoMaker, tmp_path: Path) -> None:
    """What two processes have decoded, a third one draws without decoding anything."""
    video = clip("h264_g2")
    layout = frame_layout("yuv420p", 96, 64, 2, 0)
    shape = SharedFrameLayout(
        np.array([0]), ("top",), np.array([0, 48]), ((96, 64),), (layout.nbytes,)
    )
    path = tmp_path / "frames"
    path.write_bytes(bytes(shape.nbytes))
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=decode_half, args=(path, shape, video, half)) for half in (0, 1)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    cache = SharedFrameCache(mapped(path, shape), shape)
    uses = uses_of([0] * 48, file=open_file(video))
    cache.open(uses)
    meter = Meter()
    out = video.slots(48)
    FrameDecoder(cache, meter).draw(uses, list(range(48)), out)

    np.testing.assert_array_equal(out, video.pictures)
    assert (meter.images_decoded, meter.picture_hits) == (0, 48)


def test_used_frames_stay() -> None:
    """Shared frames stay after their last delivery, for the next epoch."""
    cache = SharedFrameCache(new_memory(SHAPE), SHAPE)
    uses = episode_of(cache, 0, 3)
    put(cache, uses, 2, WIDE)
    slots = uses.slots
    cache.release(uses, [2])
    cache.close(uses)

    assert cache.keeps_used
    assert episode_of(cache, 0, 3).slots == slots
