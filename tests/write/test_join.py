# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from robostream.errors import WriteError
from robostream.meta import DepthCoding, encode_depth
from robostream.write import VideoEncoderConfig
from robostream.write.encoder import EpisodeFile, VideoEncoder, VideoSpec, frame_rate
from robostream.write.join import VideoPart, join_videos, split_videos
from tests.write.recording import HEIGHT, WIDTH, decode, number_in, numbered_image

CODECS: list[dict[str, Any]] = [
    {"codec": "libsvtav1"},
    {"codec": "h264", "g": 2},
    {"codec": "h264", "g": 250, "crf": 23, "extra_options": {"bf": 3}},
    {"codec": "hevc", "g": 12, "preset": "ultrafast", "extra_options": {"bf": 4}},
]


def encode(path: Path, images: list[np.ndarray], spec: VideoSpec) -> EpisodeFile:
    encoder = VideoEncoder(path, spec)
    for image in images:
        encoder.add(image)
    return encoder.finish()


def as_parts(videos: list[EpisodeFile]) -> list[VideoPart]:
    starts = np.cumsum([0, *(video.num_frames for video in videos)])
    return [
        VideoPart(video.path, int(start), video.num_frames, video.reorder_frames)
        for start, video in zip(starts, videos, strict=False)
    ]


@pytest.mark.parametrize("options", CODECS, ids=lambda o: f"{o['codec']}-g{o.get('g', 2)}")
@pytest.mark.parametrize("fps", [30, 7])
def test_joined_frames_are_the_same_frames_at_even_times(
    tmp_path: Path, options: dict[str, Any], fps: int
) -> None:
    """No frame is lost, moved or re-encoded; frame k is shown at k / fps, B-frames or not."""
    spec = VideoSpec(WIDTH, HEIGHT, frame_rate(fps), VideoEncoderConfig(**options))
    lengths = [13, 1, 2, 30, 1]
    numbers = iter(range(sum(lengths)))
    videos = [
        encode(tmp_path / f"{i}.mp4", [numbered_image(next(numbers)) for _ in range(n)], spec)
        for i, n in enumerate(lengths)
    ]
    join_videos(as_parts(videos), tmp_path / "joined.mp4", rate=spec.rate)
    separate = [image for video in videos for _, image in decode(video.path)]
    joined = decode(tmp_path / "joined.mp4")

    assert len({video.parameters for video in videos}) == 1
    assert [number_in(image) for _, image in joined] == list(range(sum(lengths)))
    assert all(abs(time_s - k / fps) < 1e-9 for k, (time_s, _) in enumerate(joined))
    assert all(np.array_equal(a, b) for a, (_, b) in zip(separate, joined, strict=True))


@pytest.mark.parametrize("options", CODECS, ids=lambda o: f"{o['codec']}-g{o.get('g', 2)}")
def test_a_joined_video_can_be_taken_apart(tmp_path: Path, options: dict[str, Any]) -> None:
    """The parts come back frame by frame, and joined again they give the same video."""
    spec = VideoSpec(WIDTH, HEIGHT, frame_rate(30), VideoEncoderConfig(**options))
    videos = [
        encode(tmp_path / f"{i}.mp4", [numbered_image(20 * i + k) for k in range(n)], spec)
        for i, n in enumerate([13, 1, 9])
    ]
    parts = as_parts(videos)
    again = [dataclasses.replace(p, path=tmp_path / f"again{p.start_frame}.mp4") for p in parts]
    join_videos(parts, tmp_path / "joined.mp4", rate=spec.rate)
    split_videos(tmp_path / "joined.mp4", again, rate=spec.rate)
    join_videos(again, tmp_path / "joined again.mp4", rate=spec.rate)

    for part, copy in zip(parts, again, strict=True):
        pairs = zip(decode(part.path), decode(copy.path), strict=True)
        assert all(t == u and np.array_equal(a, b) for (t, a), (u, b) in pairs)
    assert (tmp_path / "joined.mp4").read_bytes() == (tmp_path / "joined again.mp4").read_bytes()


@pytest.mark.long
def test_times_stay_exact_late_in_a_long_file(tmp_path: Path) -> None:
    """After hours of video a frame is still at its place: times are counted, not added up."""
    options = VideoEncoderConfig(codec="h264", g=250, preset="ultrafast", extra_options={"bf": 2})
    spec = VideoSpec(16, 16, frame_rate(30), options)
    images = [np.full((16, 16, 3), k % 256, np.uint8) for k in range(2000)]
    video = encode(tmp_path / "part.mp4", images, spec)
    repeats = 60
    parts = [
        VideoPart(video.path, i * 2000, video.num_frames, video.reorder_frames)
        for i in range(repeats)
    ]
    join_videos(parts, tmp_path / "joined.mp4", rate=spec.rate)
    with av.open(str(tmp_path / "joined.mp4")) as container:
        times = sorted(p.pts * p.time_base for p in container.demux(video=0) if p.pts is not None)
        length_s = container.streams.video[0].duration * container.streams.video[0].time_base

    assert times == [Fraction(k, 30) for k in range(repeats * 2000)]
    assert length_s == Fraction(repeats * 2000, 30)


def test_each_episode_starts_with_a_key_frame_and_the_index_comes_first(tmp_path: Path) -> None:
    """Episodes can be cut out by packets alone, and a reader finds the index at the start."""
    spec = VideoSpec(WIDTH, HEIGHT, frame_rate(20), VideoEncoderConfig(codec="h264", g=250))
    videos = [
        encode(tmp_path / f"{i}.mp4", [numbered_image(k) for k in range(9)], spec) for i in range(3)
    ]
    target = tmp_path / "joined.mp4"
    join_videos(as_parts(videos), target, rate=spec.rate)
    with av.open(str(target)) as container:
        packets = [p for p in container.demux(video=0) if p.pts is not None]
    keys = [float(p.pts * p.time_base * 20) for p in packets if p.is_keyframe]
    content = target.read_bytes()

    assert keys == [0, 9, 18]
    assert content.index(b"moov") < content.index(b"mdat")


@pytest.mark.parametrize("options", CODECS, ids=lambda o: f"{o['codec']}-g{o.get('g', 2)}")
def test_every_gop_is_closed(tmp_path: Path, options: dict[str, Any]) -> None:
    """From any key frame to the next, the packets alone give all frames in between."""
    options = options | {"g": min(options.get("g", 2), 12)}
    spec = VideoSpec(WIDTH, HEIGHT, frame_rate(20), VideoEncoderConfig(**options))
    video = encode(tmp_path / "a.mp4", [numbered_image(k) for k in range(30)], spec)
    whole = [image for _, image in decode(video.path)]
    with av.open(str(video.path)) as container:
        packets = [p for p in container.demux(video=0) if p.pts is not None]
        context = container.streams.video[0].codec_context
        keys = [i for i, packet in enumerate(packets) if packet.is_keyframe]
        for start, stop in zip(keys, [*keys[1:], len(packets)], strict=True):
            context.flush_buffers()
            frames = [f for p in packets[start:stop] for f in context.decode(p)]
            frames += context.decode(None)

            assert len(frames) == stop - start
            for shown, image in zip(range(start, stop), frames, strict=True):
                np.testing.assert_array_equal(image.to_ndarray(format="rgb24"), whole[shown])
    assert len(keys) > 1


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_depth_videos_keep_every_code(tmp_path: Path, dtype: str) -> None:
    """A depth video is lossless: what is decoded are the codes of the distances, to the bit."""
    coding = DepthCoding()
    options = VideoEncoderConfig(
        codec="hevc", pix_fmt="gray12le", extra_options={"x265-params": "lossless=1"}
    )
    # A width that is no multiple of what codecs align to.
    spec = VideoSpec(90, 50, frame_rate(10), options, coding)
    rng = np.random.default_rng(0)
    scale = 1 if dtype == "uint16" else 1000
    images = [(rng.integers(0, 12_000, (50, 90)) / scale).astype(dtype) for _ in range(5)]
    video = encode(tmp_path / "depth.mp4", images, spec)
    join_videos(as_parts([video, video]), tmp_path / "joined.mp4", rate=spec.rate)
    decoded = [image for _, image in decode(tmp_path / "joined.mp4", "gray12le")]

    assert len(decoded) == 10
    for image, codes in zip(images * 2, decoded, strict=True):
        np.testing.assert_array_equal(codes, encode_depth(image, coding))


def test_a_wrong_length_is_noticed(tmp_path: Path) -> None:
    """A part that is not as long as it was said to be is never published."""
    spec = VideoSpec(WIDTH, HEIGHT, frame_rate(20), VideoEncoderConfig(codec="h264"))
    video = encode(tmp_path / "a.mp4", [numbered_image(k) for k in range(4)], spec)
    part = VideoPart(video.path, 0, 5, video.reorder_frames)
    with pytest.raises(WriteError, match=r"want 5 frames .* found 4"):
        join_videos([part], tmp_path / "joined.mp4", rate=spec.rate)
