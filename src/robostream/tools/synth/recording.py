# SPDX-License-Identifier: Apache-2.0
"""`make_dataset`: the synthetic episodes of a SynthSpec as a LeRobot v3.0 dataset."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

from robostream import config
from robostream.errors import EncoderStalledError, WriteError
from robostream.meta import DatasetInfo
from robostream.progress import Progress
from robostream.tools.child_processes import run_in_children
from robostream.tools.synth.geometry import CAMERA_NAMES, DEPTH_CAMERA_NAME, JOINT_NAMES
from robostream.tools.synth.script import (
    ALL_TASKS,
    EpisodeScript,
    RandomStream,
    choose_tasks,
    generator_of,
    write_script,
)
from robostream.tools.synth.view import open_view, render, render_depth
from robostream.write import (
    RecordedEpisode,
    RecordingOptions,
    VideoEncoderConfig,
    create_writer,
    encode_episode,
)

ROBOT_TYPE = "synthetic_arm"
MIN_SIDE_PX = 32
DEPTH_KEY = f"observation.images.{DEPTH_CAMERA_NAME}_depth"


@dataclass(frozen=True, slots=True)
class SynthSpec:
    """A synthetic dataset; with the same libraries, equal specs give equal datasets."""

    episodes: int = config.SYNTH_EPISODES
    min_frames: int = config.SYNTH_MIN_FRAMES  # length of the shortest possible episode
    max_frames: int = config.SYNTH_MAX_FRAMES  # length of the longest possible episode
    cameras: int = config.SYNTH_CAMERAS  # colour cameras, in the order of CAMERA_NAMES
    image_cameras: int = 0  # how many of them, the last, are stored as images, not as video
    depth: bool = False  # whether to add a depth camera
    width: int = config.SYNTH_WIDTH
    height: int = config.SYNTH_HEIGHT
    fps: int = config.SYNTH_FPS
    tasks: int = config.SYNTH_TASKS  # how many different tasks the episodes cycle through
    seed: int = 0
    codec: str = config.VIDEO_CODEC  # the video encoder, as `VideoEncoderConfig` names it
    gop: int = config.VIDEO_GOP  # frames per key frame
    crf: float = config.VIDEO_CRF  # quality; lower is better and larger
    preset: int | str | None = None  # speed against size; None for the codec's default
    data_file_mb: float = config.DATA_FILES_SIZE_IN_MB  # when a new file begins
    video_file_mb: float = config.VIDEO_FILES_SIZE_IN_MB
    distinct: int | None = None  # episodes to make, which the others repeat; None for all

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


@dataclass(frozen=True, slots=True)
class SynthReport:
    """What was made."""

    path: Path
    episodes: int
    frames: int
    tasks: int
    data_files: int
    video_files: int
    size_bytes: int
    camera_kbit_per_s: dict[str, float]  # of each camera stored as video


def make_dataset(dest: Path, spec: SynthSpec, *, jobs: int = 1) -> SynthReport:
    """Make the dataset of a spec in the folder `dest`, which must be new or empty.

    The dataset appears there when it is complete; after a failure, `dest` is unchanged. The bytes
    do not depend on `jobs`, the number of processes. Raises WriteError if the folder is not empty
    or writing fails, ValueError if the encoder does not support the options.
    """
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        what = "a folder that is not empty" if dest.is_dir() else "a file"
        raise WriteError(
            f"want a new or empty folder for the dataset, found {what}: {dest}. "
            "Choose another destination or remove it."
        )
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as staging:
            root = Path(staging) / dest.name
            _record(root, spec, jobs)
            os.replace(root, dest)
    except (OSError, av.FFmpegError) as error:
        cause = error.__cause__ if isinstance(error, WriteError) else error
        if not isinstance(cause, OSError | av.FFmpegError):
            raise
        raise WriteError(
            f"cannot make a dataset in {dest}: {cause.strerror or cause}. Nothing was "
            "left there. Choose another destination or free space."
        ) from error
    return _report(dest, spec)


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


def features_of(spec: SynthSpec) -> dict[str, dict[str, Any]]:
    """Return the features of the dataset of a spec. Pure."""
    joints = {"dtype": "float32", "shape": (len(JOINT_NAMES),), "names": list(JOINT_NAMES)}
    features: dict[str, dict[str, Any]] = {
        "observation.state": joints,
        "action": dict(joints),
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    }
    videos, shape = spec.cameras - spec.image_cameras, (spec.height, spec.width)
    cameras = {
        image_key(name): {"dtype": "video" if number < videos else "image", "shape": (*shape, 3)}
        for number, name in enumerate(spec.camera_names)
    }
    if spec.depth:  # one channel
        cameras[DEPTH_KEY] = {"dtype": "video", "shape": (*shape, 1)}
    axes = ["height", "width", "channels"]
    return features | {key: {**entry, "names": axes} for key, entry in cameras.items()}


def _record(root: Path, spec: SynthSpec, jobs: int) -> None:
    writer = create_writer(
        root,
        fps=spec.fps,
        features=features_of(spec),
        robot_type=ROBOT_TYPE,
        use_videos=spec.image_cameras < spec.cameras or spec.depth,
        data_files_size_in_mb=spec.data_file_mb,
        video_files_size_in_mb=spec.video_file_mb,
        encoder=spec.encoder(),
    )
    folder = root.with_name("episodes")
    record = partial(_record_episode, spec, folder, writer.info, writer.options)
    progress = Progress("synth", _total_frames(spec), "frames")
    try:
        with progress, closing(_record_episodes(record, spec, jobs)) as recorded:
            for staged in recorded:
                writer.save_recorded(staged)
                progress.update(staged.num_frames)
        writer.finalize()
    finally:
        writer.close_unfinished()  # a partial dataset is of no use


def _report(root: Path, spec: SynthSpec) -> SynthReport:
    frames = _total_frames(spec)
    duration_s = frames / spec.fps
    videos = [key for key, entry in features_of(spec).items() if entry["dtype"] == "video"]
    sizes = {key: _size_bytes(root / "videos" / key) for key in videos}
    return SynthReport(
        path=root,
        episodes=spec.episodes,
        frames=frames,
        tasks=min(spec.tasks, spec.episodes),
        data_files=len(list((root / "data").rglob("*.parquet"))),
        video_files=len(list((root / "videos").rglob("*.mp4"))),
        size_bytes=_size_bytes(root),
        camera_kbit_per_s={key: size * 8 / duration_s / 1000 for key, size in sizes.items()},
    )


def _total_frames(spec: SynthSpec) -> int:
    return sum(length_of(spec, episode) for episode in range(spec.episodes))


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _record_episodes(
    record: Callable[..., RecordedEpisode], spec: SynthSpec, processes: int
) -> Generator[RecordedEpisode]:
    """Yield all episodes in order, repeated ones as copies. Closing ends the processes."""
    originals = min(spec.episodes, spec.distinct or spec.episodes)
    processes = min(processes, originals)
    jobs, ahead = range(originals), 2 * processes
    made: Iterator[RecordedEpisode] = map(record, jobs)
    if processes > 1:
        made = run_in_children(record, jobs, processes=processes, per_child=2, ahead=ahead)
    if originals == spec.episodes:
        yield from made
        return
    kept: list[RecordedEpisode] = []
    for episode in range(spec.episodes):
        if episode < originals:
            kept.append(next(made))
        staged = kept[spec.original(episode)]
        folder = staged.folder.with_name(f"{episode} again")
        shutil.copytree(staged.folder, folder)
        yield replace(staged, folder=folder)


def _record_episode(
    spec: SynthSpec,
    folder: Path,
    info: DatasetInfo,
    options: RecordingOptions,
    episode: int,
    _send: object = None,
) -> RecordedEpisode:
    """Return one episode, its videos in a sub-folder of `folder`."""
    script, target = script_of(spec, episode), folder / str(episode)
    try:
        return encode_episode(target, info, options, frames_of(spec, script))
    except EncoderStalledError:  # a second attempt with the same frames succeeds
        return encode_episode(target, info, options, frames_of(spec, script))
