# SPDX-License-Identifier: Apache-2.0
"""Synthetic episodes of a robot at a table, recorded as a LeRobot v3.0 dataset."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
from tqdm import tqdm

from robostream.errors import WriteError
from robostream.tools.synth.episode import DEPTH_KEY, image_key, length_of
from robostream.tools.synth.jobs import EpisodeJob, record_episodes
from robostream.tools.synth.scene import JOINT_NAMES
from robostream.tools.synth.spec import SynthSpec
from robostream.write import create_writer

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
    """Make the dataset of a spec in the folder `dest`, which must not exist or be empty.

    The dataset appears there when it is complete; if anything fails, `dest` is as it was. `jobs`
    processes make episodes; any number of them gives the same bytes.

    Raises:
        WriteError: The folder is in use or the disk refuses.
        ValueError: The encoder refuses the spec's options.
    """
    _check_free(dest)
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as workshop:
            root = Path(workshop) / dest.name
            _record(root, spec, jobs)
            os.replace(root, dest)
    except (OSError, av.FFmpegError) as error:
        refusal = error.__cause__ if isinstance(error, WriteError) else error
        if not isinstance(refusal, OSError | av.FFmpegError):
            raise  # not the disk's
        raise WriteError(
            f"cannot make a dataset in {dest}: {refusal.strerror or refusal}. Nothing is left of "
            "it there. Choose another destination or free space."
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
    for place, name in enumerate(spec.camera_names):
        features[image_key(name)] = {
            "dtype": "video" if place < first_image else "image",
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
    """Write all episodes into a new folder."""
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
    job = EpisodeJob(spec, root.with_name("episodes"), writer.info, writer.options)
    bar = tqdm(total=_total_frames(spec), unit=" frames", desc="synth", disable=None)
    try:
        with bar, closing(record_episodes(job, jobs)) as recorded:
            for episode in recorded:
                writer.save_recorded(episode)
                bar.update(episode.num_frames)
        writer.finalize()
    finally:
        writer.close_unfinished()  # a part of a dataset is of no use to anybody


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
    """Return what lies in the folder of a finished dataset."""
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
    """Return the number of frames of all episodes."""
    return sum(length_of(spec, episode) for episode in range(spec.episodes))


def _size_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
