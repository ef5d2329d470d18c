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

from robostream.batches import SharedFrameCache, SharedFrameLayout
from robostream.batches.clip import Clip
from robostream.batches.clip_decoder import ClipDecoder, tools_on_cpu
from robostream.decode import FrameLayout, Meter, kept_layout
from tests.batches.clips import clip_of, open_file
from tests.decode.conftest import SampleVideo

VideoMaker = Callable[[str], SampleVideo]
WIDE = kept_layout("yuv420p", 96, 64, 2, 0)
NARROW = kept_layout("rgb", 32, 32, 0, 0)
DEPTH = kept_layout("depth", 16, 16, 0, 0)
# Episodes 3, 7 and 9 of 5, 4 and 6 frames; the third camera is not kept.
SHAPE = SharedFrameLayout(
    episodes=np.array([3, 7, 9]),
    cameras=("wide", "narrow", "unkept"),
    starts=np.array([0, 5, 9, 15]),
    sizes=((96, 64), (32, 32), (16, 16)),
    slot_bytes=(WIDE.nbytes, NARROW.nbytes, 0),
)
LENGTHS = {3: 5, 7: 4, 9: 6}


def new_memory(shape: SharedFrameLayout) -> npt.NDArray[np.uint8]:
    """Return memory for the pictures of a selection."""
    return np.zeros(shape.nbytes, np.uint8)


def mapped(path: Path, shape: SharedFrameLayout) -> npt.NDArray[np.uint8]:
    """Return the memory of a file that several processes map."""
    return np.memmap(path, np.uint8, "r+", shape=(shape.nbytes,))


def episode_reel(camera: int, episode: int) -> Clip:
    """Return a reel of a whole episode."""
    return clip_of([0] * LENGTHS[episode], camera=camera, episode=episode)


def put(frames: SharedFrameCache, reel: Clip, picture: int, layout: FrameLayout) -> bool:
    """Keep a picture filled with a value of its own; return whether it got in."""
    slot = frames.take(reel, picture, layout)
    if slot is None:
        return False
    frames.memory(slot).content[:] = value_of(reel, picture)
    frames.publish(slot, layout)
    reel.slots[picture] = slot
    return True


def value_of(reel: Clip, picture: int) -> int:
    """Return what a picture is filled with."""
    return 10 + reel.camera * 100 + reel.episode * 7 + picture


@given(
    order=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(sorted(LENGTHS)), st.integers(0, 3)),
        max_size=30,
    )
)
def test_every_picture_has_a_place_of_its_own(order: list[tuple[int, int, int]]) -> None:
    """Whatever is put in, in whatever order, another view finds just that, and right."""
    memory = new_memory(SHAPE)
    writer = SharedFrameCache(memory, SHAPE)
    for camera, episode, picture in order:
        assert put(writer, episode_of(writer, camera, episode), picture, (WIDE, NARROW)[camera])
    reader = SharedFrameCache(memory, SHAPE)

    for camera in (0, 1):
        for episode in LENGTHS:
            reel = episode_of(reader, camera, episode)
            found = {picture for picture, slot in enumerate(reel.slots) if slot >= 0}
            assert found == {p for c, e, p in order if (c, e) == (camera, episode)}
            for picture in found:
                content = reader.memory(reel.slots[picture]).content
                assert np.all(content == value_of(reel, picture))
            assert reel.layout is ((WIDE, NARROW)[camera] if found else None)


def episode_of(frames: SharedFrameCache, camera: int, episode: int) -> Clip:
    """Return an open reel of a whole episode."""
    reel = episode_reel(camera, episode)
    frames.open(reel)
    return reel


def test_a_reel_of_part_of_an_episode_finds_its_pictures() -> None:
    """Pictures lie by their frame in the episode, wherever a reel begins."""
    memory = new_memory(SHAPE)
    frames = SharedFrameCache(memory, SHAPE)
    for picture in range(6):
        put(frames, episode_of(frames, 0, 9), picture, WIDE)
    whole = episode_of(frames, 0, 9)
    part = Clip(
        whole.clock,
        0,
        9,
        whole.file,
        np.arange(6),
        samples=np.array([2, 4]),
        steps=np.array([0, 0]),
        offsets=np.zeros(1, np.int64),
    )
    frames.open(part)

    assert part.slots == whole.slots[2:5]


def test_pictures_of_other_sizes_are_not_kept() -> None:
    """Places are cut for the declared size; a camera without places keeps nothing."""
    frames = SharedFrameCache(new_memory(SHAPE), SHAPE)

    assert not put(frames, episode_of(frames, 0, 3), 0, NARROW)
    assert not put(frames, episode_of(frames, 1, 3), 0, WIDE)
    assert not put(frames, episode_of(frames, 2, 3), 0, DEPTH)
    assert episode_of(frames, 0, 3).slots == [-1] * 5


def test_a_picture_is_seen_once_it_is_published() -> None:
    """Until it is published, only half of a picture may be in its memory."""
    memory = new_memory(SHAPE)
    one, other = SharedFrameCache(memory, SHAPE), SharedFrameCache(memory, SHAPE)
    reel = episode_of(one, 0, 7)
    slot = one.take(reel, 1, WIDE)
    assert slot is not None
    assert episode_of(other, 0, 7).slots == [-1] * 4
    one.publish(slot, WIDE)

    assert episode_of(other, 0, 7).slots == [-1, slot, -1, -1]


@pytest.mark.parametrize("kind", ["yuv420p", "yuvj420p", "rgb", "depth"])
@pytest.mark.parametrize("colours", [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_how_a_picture_lies_is_told_to_all(kind: str, colours: tuple[int, int]) -> None:
    """Format, colour space and range come back as the very layout they were."""
    layout = kept_layout(kind, 96, 64, *colours)
    shape = SharedFrameLayout(
        np.array([0]), ("wide",), np.array([0, 5]), ((96, 64),), (layout.nbytes,)
    )
    memory = new_memory(shape)
    writer = SharedFrameCache(memory, shape)
    reel = clip_of([0] * 5)
    writer.open(reel)
    put(writer, reel, 3, layout)
    seen = clip_of([0] * 5)
    SharedFrameCache(memory, shape).open(seen)

    assert seen.layout is layout


def decode_half(path: Path, shape: SharedFrameLayout, clip: Clip, half: int) -> None:
    """Decode every other frame of a clip into shared memory, in a process of its own."""
    frames = SharedFrameCache(mapped(path, shape), shape)
    reel = clip_of([0] * len(clip), file=open_file(clip))
    frames.open(reel)
    projector = ClipDecoder(
        tools_on_cpu(frames), Meter(), max_decodings=2, sizes=[None], parcels=[None]
    )
    projector.decode([(reel, list(range(half, len(clip), 2)))])


def test_processes_see_each_others_pictures(clip: VideoMaker, tmp_path: Path) -> None:
    """What two processes have decoded, a third one draws without decoding anything."""
    video = clip("h264_g2")
    layout = kept_layout("yuv420p", 96, 64, 2, 0)
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
    frames = SharedFrameCache(mapped(path, shape), shape)
    reel = clip_of([0] * 48, file=open_file(video))
    frames.open(reel)
    meter = Meter()
    out = video.slots(48)
    ClipDecoder(tools_on_cpu(frames), meter, max_decodings=2, sizes=[None], parcels=[None]).draw(
        reel, list(range(48)), out
    )

    np.testing.assert_array_equal(out, video.pictures)
    assert (meter.images_decoded, meter.picture_hits) == (0, 48)


def test_used_pictures_stay() -> None:
    """Shared pictures stay after their last delivery, for the next epoch."""
    frames = SharedFrameCache(new_memory(SHAPE), SHAPE)
    reel = episode_of(frames, 0, 3)
    put(frames, reel, 2, WIDE)
    frames.release(reel.slots[2])

    assert frames.keeps_used
    assert episode_of(frames, 0, 3).slots == reel.slots
