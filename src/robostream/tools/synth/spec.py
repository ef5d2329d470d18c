# SPDX-License-Identifier: Apache-2.0
"""What a synthetic dataset shall be: the options of `robostream synth` as a record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from robostream import config
from robostream.tools.synth.scene import ALL_TASKS, CAMERA_NAMES
from robostream.write import VideoEncoderConfig

MIN_SIDE_PX = 32


@dataclass(frozen=True, slots=True)
class SynthSpec:
    """A synthetic dataset; with the same libraries, equal specs give equal datasets.

    Attributes:
        episodes: How many episodes.
        distinct: How many of them are made; the others repeat these in turn. None for all.
        min_frames: The length of the shortest episode there may be.
        max_frames: The length of the longest.
        cameras: How many cameras, in the order of `scene.CAMERA_NAMES`.
        image_cameras: How many of them, from the last, are stored as images and not as video.
        depth: Whether there is a depth camera too.
        width: Of every image, in pixels.
        height: Of every image, in pixels.
        fps: Frames per second.
        tasks: How many different tasks the episodes take in turn.
        seed: Everything random comes from it.
        codec: The video encoder, as `VideoEncoderConfig` names it.
        gop: A key frame every so many frames.
        crf: Quality; lower is better and larger.
        preset: Speed against size; None is the codec's usual.
        data_file_mb: A Parquet file that would grow beyond this is followed by another.
        video_file_mb: The same for video files.
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
        _want(self.episodes >= 1, "episodes of 1 or more", self.episodes)
        _want(self.distinct is None or self.distinct >= 1, "distinct of 1 or more", self.distinct)
        _want(
            2 <= self.min_frames <= self.max_frames,
            "2 <= min_frames <= max_frames",
            f"{self.min_frames} and {self.max_frames}",
        )
        names = ", ".join(CAMERA_NAMES)
        limit = len(CAMERA_NAMES)
        _want(1 <= self.cameras <= limit, f"1 to {limit} cameras ({names})", self.cameras)
        _want(
            0 <= self.image_cameras <= self.cameras,
            f"image_cameras of 0 to {self.cameras}, the number of cameras",
            self.image_cameras,
        )
        _want(self.fps >= 1, "fps of 1 or more", self.fps)
        _want(1 <= self.tasks <= len(ALL_TASKS), f"1 to {len(ALL_TASKS)} tasks", self.tasks)
        _want(self.seed >= 0, "a seed of 0 or more", self.seed)
        _want(self.data_file_mb > 0, "data_file_mb above 0", self.data_file_mb)
        _want(self.video_file_mb > 0, "video_file_mb above 0", self.video_file_mb)
        self._check_size()

    def _check_size(self) -> None:
        """Raise ValueError if the codecs cannot take images of this size."""
        sides = (self.width, self.height)
        _want(
            min(sides) >= MIN_SIDE_PX and not any(side % 2 for side in sides),
            f"width and height even and {MIN_SIDE_PX} or more",
            f"{self.width}x{self.height}",
        )
        # libx265 4.2 writes beyond its buffers for narrower images and takes the process with it.
        hevc = self.depth or self.encoder().codec == "hevc"
        _want(
            not hevc or self.width >= config.MIN_HEVC_WIDTH_PX,
            f"a width of {config.MIN_HEVC_WIDTH_PX} or more for HEVC, which depth uses too",
            self.width,
        )

    def encoder(self) -> VideoEncoderConfig:
        """Return how the colour cameras are encoded: the same frames give the same bytes.

        x264 writes other bytes with other numbers of threads, and with mbtree each time.
        """
        options = VideoEncoderConfig(
            codec=self.codec, g=self.gop, crf=self.crf, preset=self.preset, threads=1
        )
        return replace(options, extra_options={"mbtree": 0}) if options.codec == "h264" else options

    def original(self, episode: int) -> int:
        """Return the episode that this one repeats: itself, unless fewer are distinct."""
        return episode if self.distinct is None else episode % self.distinct

    @property
    def camera_names(self) -> tuple[str, ...]:
        """The colour cameras."""
        return CAMERA_NAMES[: self.cameras]


def _want(holds: bool, wanted: str, found: object) -> None:
    """Raise ValueError unless a condition holds."""
    if not holds:
        raise ValueError(f"want {wanted}, got {found}")
