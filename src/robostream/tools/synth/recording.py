# SPDX-License-Identifier: Apache-2.0
"""`make_dataset`: synthetic episodes recorded as a LeRobot v3.0 dataset, by several processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import av

from robostream.errors import EncoderStalledError, WriteError
from robostream.meta import DatasetInfo
from robostream.progress import Progress
from robostream.tools.child_processes import run_in_children
from robostream.tools.synth.arm import JOINT_NAMES
from robostream.tools.synth.spec import (
    DEPTH_KEY,
    SynthSpec,
    frames_of,
    image_key,
    length_of,
    script_of,
)
from robostream.write import RecordedEpisode, RecordingOptions, create_writer, encode_episode

ROBOT_TYPE = "synthetic_arm"


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
    do not depend on `jobs`, the number of processes.

    Raises:
        WriteError: The folder is not empty, or writing fails.
        ValueError: The encoder does not support the spec's options.
    """
    _check_free(dest)
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


def features_of(spec: SynthSpec) -> dict[str, dict[str, Any]]:
    """Return the features of the dataset of a spec. Pure."""
    joints = {"dtype": "float32", "shape": (len(JOINT_NAMES),), "names": list(JOINT_NAMES)}
    features: dict[str, dict[str, Any]] = {
        "observation.state": joints,
        "action": dict(joints),
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    }
    axes = ["height", "width", "channels"]
    first_image = spec.cameras - spec.image_cameras
    for number, name in enumerate(spec.camera_names):
        features[image_key(name)] = {
            "dtype": "video" if number < first_image else "image",
            "shape": (spec.height, spec.width, 3),
            "names": axes,
        }
    if spec.depth:
        features[DEPTH_KEY] = {
            "dtype": "video",
            "shape": (spec.height, spec.width, 1),
            "names": axes,
            "info": {"is_depth_map": True},
        }
    return features


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


def _check_free(dest: Path) -> None:
    """Raise WriteError if the folder is there and not empty."""
    if dest.is_dir() and not any(dest.iterdir()):
        return
    if dest.exists():
        what = "a folder that is not empty" if dest.is_dir() else "a file"
        raise WriteError(
            f"want a new or empty folder for the dataset, found {what}: {dest}. "
            "Choose another destination or remove it."
        )


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
    """Yield all episodes in order; those that repeat others as copies. Closing ends the processes.

    At most two episodes per process are made ahead.
    """
    originals = min(spec.episodes, spec.distinct or spec.episodes)
    processes = min(processes, originals)
    made = (
        run_in_children(
            record, range(originals), processes=processes, per_child=2, ahead=2 * processes
        )
        if processes > 1
        else map(record, range(originals))
    )
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

    def record() -> RecordedEpisode:
        frames = frames_of(spec, script_of(spec, episode))
        return encode_episode(folder / str(episode), info, options, frames)

    try:
        return record()
    except EncoderStalledError:
        return record()  # a second attempt with the same frames succeeds
