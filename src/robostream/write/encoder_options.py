# SPDX-License-Identifier: Apache-2.0
"""The encoding options that users set, checked and translated for FFmpeg's encoders."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av

from robostream import arguments, config
from robostream.decode import has_codec
from robostream.meta import DatasetInfo, DepthCoding, image_shape

# In the order in which "auto" tries them.
HARDWARE_CODECS = (
    "h264_videotoolbox",
    "hevc_videotoolbox",
    "h264_nvenc",
    "hevc_nvenc",
    "h264_vaapi",
    "h264_qsv",
)
CODECS = ("libsvtav1", "h264", "hevc", "libaom-av1", *HARDWARE_CODECS)
ALIASES = {"av1": "libsvtav1", "libx264": "h264", "libx265": "hevc"}

_TASKS = "/proc/self/task"

OptionValue = str | int | float


@dataclass(frozen=True, slots=True)
class VideoEncoderConfig:
    """The encoding options of a camera's video.

    Attributes:
        codec: One of CODECS or ALIASES, or "auto": the first hardware encoder that works here,
            else libsvtav1.
        pix_fmt: Pixel format of the video.
        g: Most frames from one key frame to the next.
        crf: Quality; lower values look better and take more space.
        preset: The codec's trade-off of speed and size; None means 12 for libsvtav1.
        fast_decode: Above 0, tune for fast decoding.
        threads: Threads per encoder; None lets the codec choose.
        extra_options: More options of the encoder; the fields above take precedence.
    """

    codec: str = config.VIDEO_CODEC
    pix_fmt: str = config.VIDEO_PIX_FMT
    g: int | None = config.VIDEO_GOP
    crf: float | None = config.VIDEO_CRF
    preset: int | str | None = None
    fast_decode: int = 0
    threads: int | None = None
    extra_options: Mapping[str, OptionValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("codec", "pix_fmt"):
            arguments.of_kind(getattr(self, name), name, str, "a name")
        arguments.of_kind(self.preset, "preset", str | int | None, "a name or a whole number")
        arguments.of_kind(self.extra_options, "extra_options", Mapping, "values by name (a dict)")
        for name, least in (("g", 1), ("fast_decode", 0), ("threads", 0)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, arguments.whole_number(value, name, least))
        if self.crf is not None:
            object.__setattr__(self, "crf", arguments.number(self.crf, "crf", or_zero=True))
        object.__setattr__(self, "codec", _resolve_codec(self.codec))
        if self.preset is None and self.codec == "libsvtav1":
            object.__setattr__(self, "preset", config.SVTAV1_PRESET)

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> VideoEncoderConfig:
        """Return the options in a camera's `info` block; missing ones have their defaults."""
        names = ("codec", "pix_fmt", "g", "crf", "preset", "fast_decode", "extra_options")
        found = {name: info.get(f"video.{name}") for name in names}
        return cls(**{name: value for name, value in found.items() if value is not None})

    def to_info(self) -> dict[str, Any]:
        """Return the fields of the `info` block that record these options."""
        return {
            "video.g": self.g,
            "video.crf": self.crf,
            "video.preset": self.preset,
            "video.fast_decode": self.fast_decode,
            "video.video_backend": "pyav",
            "video.extra_options": dict(self.extra_options),
        }


def _depth_video() -> VideoEncoderConfig:
    return VideoEncoderConfig(
        codec=config.DEPTH_CODEC,
        pix_fmt=config.DEPTH_PIX_FMT,
        extra_options=config.DEPTH_CODEC_OPTIONS,
    )


@dataclass(frozen=True, slots=True)
class DepthEncoderConfig:
    """The encoding options of a depth camera: from distances to codes, from codes to a video.

    Attributes:
        video: The encoding options of the video of codes.
        coding: The scale from distances to the codes 0 to 4095.
    """

    video: VideoEncoderConfig = field(default_factory=_depth_video)
    coding: DepthCoding = field(default_factory=DepthCoding)

    def __post_init__(self) -> None:
        arguments.of_kind(self.video, "video", VideoEncoderConfig, "a VideoEncoderConfig")
        arguments.of_kind(self.coding, "coding", DepthCoding, "a DepthCoding")

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> DepthEncoderConfig:
        """Return the options in a camera's `info` block; an empty block gives the defaults."""
        video = VideoEncoderConfig.from_info(info) if info else _depth_video()
        return cls(video, DepthCoding.from_info(info))

    def to_info(self) -> dict[str, Any]:
        """Return the fields of the `info` block that record these options."""
        return self.video.to_info() | self.coding.to_info()


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """The encoders of colour and depth, and how many images may wait for each encoder."""

    encoder: VideoEncoderConfig
    depth_encoder: DepthEncoderConfig
    queue_frames: int

    def __post_init__(self) -> None:
        arguments.whole_number(self.queue_frames, "queue_frames (encoder_queue_maxsize)", least=0)
        colour, depth = VideoEncoderConfig, DepthEncoderConfig
        arguments.of_kind(self.encoder, "encoder (rgb_encoder)", colour, "a VideoEncoderConfig")
        arguments.of_kind(self.depth_encoder, "depth_encoder", depth, "a DepthEncoderConfig")

    def check_cameras(self, info: DatasetInfo) -> None:
        """Raise ValueError, naming the camera, if its encoder cannot encode its images."""
        first_of_kind: dict[tuple[bool, int, int], str] = {}
        for key in info.video_keys:
            _, height, width = image_shape(info.features[key])
            first_of_kind.setdefault((key in info.depth_keys, height, width), key)
        for (is_distance, height, width), key in first_of_kind.items():
            options = self.depth_encoder.video if is_distance else self.encoder
            try:
                check_encoder(options, width=width, height=height)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error


def ffmpeg_options(options: VideoEncoderConfig) -> dict[str, str]:
    """Return the options by the names of FFmpeg's encoder for the codec. Pure."""
    found: dict[str, OptionValue | None] = {"g": options.g, **_tuning(options)}
    # Closed GOPs let a reader start at any key frame.
    found["flags"] = f"{options.extra_options.get('flags', '')}+cgop"
    if options.codec == "hevc":
        params = str(options.extra_options.get("x265-params", ""))
        quiet = "" if "log-level" in params else "log-level=error"
        found["x265-params"] = ":".join(filter(None, [params, quiet]))
    chosen = {name: value for name, value in found.items() if value is not None}
    return {name: str(value) for name, value in {**options.extra_options, **chosen}.items()}


def check_encoder(options: VideoEncoderConfig, *, width: int, height: int) -> None:
    """Open the encoder once; raises ValueError if it rejects the options or the size."""
    size = f"{width}x{height}"
    if options.codec == "hevc" and width < config.MIN_HEVC_WIDTH_PX:
        raise ValueError(
            f"want images at least {config.MIN_HEVC_WIDTH_PX} pixels wide for the codec hevc, "
            f"found {size} (width x height): narrower ones make its encoder, x265, corrupt memory. "
            'Record wider images, choose another codec, or store the camera with dtype "image".'
        )
    try:
        unused = _open_encoder(options, width=width, height=height)
    except (av.FFmpegError, ValueError) as error:
        raise ValueError(
            f"the encoder {options.codec} refuses {size} {options.pix_fmt} with "
            f"{ffmpeg_options(options)}: {error}. Change the encoder's options, or the image size "
            "(most codecs need even numbers)."
        ) from error
    if unused:
        raise ValueError(
            f"the encoder {options.codec} has no option {', '.join(sorted(unused))}. Remove it "
            "from extra_options."
        )


@contextmanager
def normal_thread_priority() -> Iterator[None]:
    """Undo any real-time priority that threads gain in this block, in which an encoder is opened.

    If root runs it, SVT-AV1 gives the highest real-time priority to its threads and to the thread
    that opens it, whose child processes inherit it. Encoding would then starve a robot's control
    loop.
    """
    if os.geteuid() != 0 or not os.path.isdir(_TASKS):
        yield  # only root can raise a priority, and only Linux lists the threads
        return
    before = _scheduling_policies()
    try:
        yield
    finally:
        for thread, policy in _scheduling_policies().items():
            if policy in (os.SCHED_FIFO, os.SCHED_RR) and before.get(thread) != policy:
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _tuning(options: VideoEncoderConfig) -> dict[str, OptionValue | None]:
    crf, preset, threads = options.crf, options.preset, options.threads
    if options.codec == "libsvtav1":
        parts = [f"fast-decode={max(0, min(2, options.fast_decode))}"]
        parts += [] if threads is None else [f"lp={threads}"]
        parts += [str(more)] if (more := options.extra_options.get("svtav1-params")) else []
        return {"crf": crf, "preset": preset, "svtav1-params": ":".join(parts)}
    if options.codec in ("h264", "hevc"):
        tune = "fastdecode" if options.fast_decode else None
        return {"crf": crf, "preset": preset, "tune": tune, "threads": threads}
    if options.codec == "libaom-av1":
        row_mt = None if threads is None else 1
        return {"crf": crf, "preset": preset, "threads": threads, "row-mt": row_mt}
    if options.codec.endswith("_videotoolbox"):
        return {"q:v": None if crf is None else max(1, min(100, 100 - 2 * crf))}
    if options.codec.endswith("_nvenc"):
        return {"rc": 0, "qp": crf, "preset": preset}
    if options.codec.endswith("_vaapi"):
        return {"qp": crf}
    return {"global_quality": crf, "preset": preset}


def _resolve_codec(codec: str) -> str:
    codec = ALIASES.get(codec, codec)
    if codec == "auto":
        return _first_working_codec()
    if codec not in CODECS:
        raise ValueError(
            f"want a video codec out of {', '.join((*CODECS, *ALIASES, 'auto'))}; got {codec!r}"
        )
    if not has_codec(codec, "w"):
        raise ValueError(f"this PyAV's FFmpeg has no encoder {codec!r}; choose another codec")
    return codec


@functools.cache
def _first_working_codec() -> str:
    # FFmpeg lists encoders for hardware that this machine may lack, so each is opened.
    for codec in HARDWARE_CODECS:
        if not has_codec(codec, "w"):
            continue
        try:
            _open_encoder(VideoEncoderConfig(codec=codec), width=256, height=256)
        except (av.FFmpegError, ValueError):
            continue
        return codec
    return config.VIDEO_CODEC


def _open_encoder(options: VideoEncoderConfig, *, width: int, height: int) -> set[str]:
    """Open an encoder once and return the names of the options that it does not know."""
    config.quiet_encoders()
    context = av.CodecContext.create(options.codec, "w")
    assert isinstance(context, av.VideoCodecContext)
    context.width, context.height, context.pix_fmt = width, height, options.pix_fmt
    context.time_base = Fraction(1, 30)
    context.options = ffmpeg_options(options)
    with normal_thread_priority():
        context.open()
    return set(context.options)  # open() has removed those that the encoder knows


def _scheduling_policies() -> dict[int, int]:
    """Return the scheduling policy of each thread of this process."""
    found: dict[int, int] = {}
    for name in os.listdir(_TASKS):
        with suppress(ProcessLookupError):
            found[int(name)] = os.sched_getscheduler(int(name))
    return found
