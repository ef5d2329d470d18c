# SPDX-License-Identifier: Apache-2.0
"""The options of a synthetic dataset, and the frames of each of its episodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robostream import config
from robostream.tools.synth.camera import CAMERA_NAMES, DEPTH_CAMERA_NAME
from robostream.tools.synth.script import (
    ALL_TASKS,
    EpisodeScript,
    RandomStream,
    choose_tasks,
    generator_of,
    write_script,
)
from robostream.tools.synth.view import open_view, render, render_depth
from robostream.write import VideoEncoderConfig

MIN_SIDE_PX = 32
DEPTH_KEY = f"observation.images.{DEPTH_CAMERA_NAME}_depth"


@dataclass(frozen=True, slots=True)
class SynthSpec:
    """A synthetic dataset; with the same libraries, equal specs give equal datasets.

    Attributes:
        min_frames: Length of the shortest possible episode.
        max_frames: Length of the longest possible episode.
        cameras: Number of colour cameras, in the order of `camera.CAMERA_NAMES`.
        image_cameras: How many of them, counted from the last, are stored as images, not as video.
        depth: Whether to add a depth camera.
        tasks: How many different tasks the episodes cycle through.
        codec: The video encoder, as `VideoEncoderConfig` names it.
        gop: Frames per key frame.
        crf: Quality; lower is better and larger.
        preset: Speed against size; None for the codec's default.
        data_file_mb: Size at which a new Parquet file is started.
        video_file_mb: Size at which a new video file is started.
        distinct: How many episodes to make; the others repeat these in turn. None for all.
    """

    episodes: int = config.SYNTH_EPISODES
    min_frames: int = config.SYNTH_MIN_FRAMES
    max_frames: int = config.SYNTH_MAX_FRAMES
    cameras: int = config.SYNTH_CAMERAS
    image_cameras: int = 0
    depth: bool = False
    width: int = config.SYNTH_WIDTH
    height: int = config.SYNTH_HEIGHT
    fps: int = config.SYNTH_FPS
    tasks: int = config.SYNTH_TASKS
    seed: int = 0
    codec: str = config.VIDEO_CODEC
    gop: int = config.VIDEO_GOP
    crf: float = config.VIDEO_CRF
    preset: int | str | None = None
    data_file_mb: float = config.DATA_FILES_SIZE_IN_MB
    video_file_mb: float = config.VIDEO_FILES_SIZE_IN_MB
    distinct: int | None = None

    def __post_init__(self) -> None:
        limit, sides = len(CAMERA_NAMES), (self.width, self.height)
        lengths = f"{self.min_frames} and {self.max_frames}"
        cameras = f"1 to {limit} cameras ({', '.join(CAMERA_NAMES)})"
        images = f"image_cameras of 0 to {self.cameras}, the number of cameras"
        is_even = not any(side % 2 for side in sides)
        size = f"width and height even and {MIN_SIDE_PX} or more"
        # libx265 4.2 writes beyond its buffers for narrower images and crashes the process.
        is_hevc = self.depth or self.encoder().codec == "hevc"
        narrow = is_hevc and self.width < config.MIN_HEVC_WIDTH_PX
        hevc = f"a width of {config.MIN_HEVC_WIDTH_PX} or more for HEVC, which depth uses too"
        for holds, wanted, found in (
            (self.episodes >= 1, "episodes of 1 or more", self.episodes),
            (self.distinct is None or self.distinct >= 1, "distinct of 1 or more", self.distinct),
            (2 <= self.min_frames <= self.max_frames, "2 <= min_frames <= max_frames", lengths),
            (1 <= self.cameras <= limit, cameras, self.cameras),
            (0 <= self.image_cameras <= self.cameras, images, self.image_cameras),
            (self.fps >= 1, "fps of 1 or more", self.fps),
            (1 <= self.tasks <= len(ALL_TASKS), f"1 to {len(ALL_TASKS)} tasks", self.tasks),
            (self.seed >= 0, "a seed of 0 or more", self.seed),
            (self.data_file_mb > 0, "data_file_mb above 0", self.data_file_mb),
            (self.video_file_mb > 0, "video_file_mb above 0", self.video_file_mb),
            (min(sides) >= MIN_SIDE_PX and is_even, size, f"{self.width}x{self.height}"),
            (not narrow, hevc, self.width),
        ):
            if not holds:
                raise ValueError(f"want {wanted}, got {found}")

    def encoder(self) -> VideoEncoderConfig:
        """Return encoder options with which equal frames give equal bytes.

        The output of x264 depends on the number of threads, and with mbtree it varies in each run.
        """
        options = VideoEncoderConfig(
            codec=self.codec, g=self.gop, crf=self.crf, preset=self.preset, threads=1
        )
        return replace(options, extra_options={"mbtree": 0}) if options.codec == "h264" else options

    def original(self, episode: int) -> int:
        """Return the episode that this one repeats, which is itself if all are distinct."""
        return episode if self.distinct is None else episode % self.distinct

    @property
    def camera_names(self) -> tuple[str, ...]:
        """The names of the colour cameras."""
        return CAMERA_NAMES[: self.cameras]


def script_of(spec: SynthSpec, episode: int) -> EpisodeScript:
    """Return the script of one episode. Pure."""
    number = spec.original(episode)
    task = choose_tasks(spec.seed, spec.tasks)[number % spec.tasks]
    num_frames = length_of(spec, episode)
    return write_script(spec.seed, number, num_frames=num_frames, task=task)


def length_of(spec: SynthSpec, episode: int) -> int:
    """Return the number of frames of one episode. Pure."""
    rng = generator_of(RandomStream.LENGTH, spec.seed, spec.original(episode))
    return int(rng.integers(spec.min_frames, spec.max_frames, endpoint=True))


def frames_of(spec: SynthSpec, script: EpisodeScript) -> Iterator[dict[str, Any]]:
    """Yield the frames of an episode, in the form that the dataset writer expects. Pure."""
    views = {
        image_key(name): open_view(script, name, width=spec.width, height=spec.height)
        for name in spec.camera_names
    }
    actions, rewards = script.actions, script.rewards
    for frame in range(script.num_frames):
        images: dict[str, Any] = {key: render(view, frame) for key, view in views.items()}
        if spec.depth:  # by the first colour camera, which is a fixed one
            depth_view = views[image_key(DEPTH_CAMERA_NAME)]
            images[DEPTH_KEY] = render_depth(depth_view, frame)[..., None]
        yield {
            "observation.state": script.joints[frame],
            "action": actions[frame],
            "next.reward": rewards[frame : frame + 1],
            "next.done": np.array([frame == script.num_frames - 1]),
            "task": str(script.task),
            **images,
        }


def image_key(camera_name: str) -> str:
    """Return the feature name of a camera."""
    return f"observation.images.{camera_name}"
