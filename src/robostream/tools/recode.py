# SPDX-License-Identifier: Apache-2.0
"""`recode_dataset`: a copy of a dataset whose colour videos are re-encoded."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robostream import config
from robostream.errors import SelectionError, VideoFileError
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import write_bytes_atomic
from robostream.tools.child_processes import run_jobs
from robostream.tools.recode_videos import RecodeSpec, VideoFrames, VideoJob, encode_and_check
from robostream.tools.staging import (
    check_folders,
    copy_cheaply,
    staging_folder,
    visible_files,
)
from robostream.write import check_encoder, frame_rate, video_info


@dataclass(frozen=True, slots=True)
class RecodeReport:
    """What was made."""

    path: Path
    spec: RecodeSpec
    video_files: int  # number of re-encoded videos
    frames: int  # their frames
    kept_files: int  # how many of them an interrupted run had made already
    camera_bytes: dict[str, tuple[int, int]]  # size of each camera's videos before and after
    same_files: dict[str, int]  # number of other files, by how they were copied
    psnr_db: float  # the lowest PSNR of the first and last frame of each video, brightness only


@dataclass(frozen=True, slots=True)
class _SourceVideo:
    camera: str
    file: str  # relative to the dataset's root
    num_frames: int
    size_bytes: int


def recode_dataset(
    root: str | Path,
    copy: str | Path,
    spec: RecodeSpec,
    *,
    jobs: int = 1,
    cores: int = 1,
    link: bool = False,
) -> RecodeReport:
    """Make a copy of a local dataset with its colour videos encoded as `spec` says.

    Every frame keeps its exact presentation time, so rows and episode table stay unchanged. Depth
    videos do too. The copy appears when it is complete. An interrupted run resumes: files that are
    complete are not encoded again.

    Args:
        root: The dataset's folder.
        copy: The folder to make; it must not exist.
        spec: How to encode.
        jobs: Processes that encode.
        cores: Cores they share.
        link: Whether data files and depth videos become hard links where the disk cannot clone.

    Raises:
        DatasetError: The dataset, or one of its videos, cannot be read.
        WriteError: A folder is unsuitable, or the disk or an encoder fails.
        SelectionError: The dataset has no videos that can be encoded with `spec`.
    """
    source, target = check_folders(root, copy)
    meta = LeRobotDatasetMetadata(source.name, root=source)
    videos = _inspect_videos(meta, source, spec)
    replaced = {config.INFO_PATH, *(video.file for video in videos)}
    others = [name for name in visible_files(source) if name not in replaced]
    record = {"root": str(source), "dataset": meta.fingerprint, **asdict(spec)}
    with staging_folder(target, record, doing="recoding") as staging:
        rate, options = frame_rate(meta.fps), spec.encoder(max(1, cores // jobs))
        # The longest videos come first, so that no process ends alone with a long one.
        todo = [
            VideoJob(source / video.file, staging / video.file, video.num_frames, rate, options)
            for video in sorted(videos, key=lambda video: -video.num_frames)
        ]
        kept = sum(job.target.exists() for job in todo)
        frames = sum(video.num_frames for video in videos)
        # Not in this process: one whose encoder stalls ends.
        psnrs_db = run_jobs(
            encode_and_check,
            todo,
            processes=jobs,
            label="recode",
            frames=frames,
            may_run_here=False,
        )
        same = Counter(_copy(source, staging, name, link=link) for name in others)
        _write_info(videos, meta, source, staging, spec)
    return RecodeReport(
        path=target,
        spec=spec,
        video_files=len(videos),
        frames=frames,
        kept_files=kept,
        camera_bytes=_camera_bytes(videos, target),
        same_files=dict(same),
        psnr_db=min(psnrs_db),
    )


def _inspect_videos(
    meta: LeRobotDatasetMetadata, root: Path, spec: RecodeSpec
) -> list[_SourceVideo]:
    """Return the videos to encode. Raises if one is damaged or cannot be encoded with `spec`."""
    meta.ensure_readable()
    cameras = [key for key in meta.video_keys if key not in meta.depth_keys]
    if not cameras:
        raise SelectionError(
            f"{root}: want a colour camera stored as video, found none (cameras: "
            f"{', '.join(meta.camera_keys) or 'none'}), so there is nothing to encode"
        )
    sizes: dict[tuple[int, int], str] = {}
    videos = []
    for camera in cameras:
        columns = [meta.episodes[f"videos/{camera}/{name}_index"] for name in ("chunk", "file")]
        for place in np.unique(np.stack(columns, axis=1), axis=0).tolist():
            file = meta.info.video_file(camera, *place)
            index = VideoFrames(root / file).index
            if np.any(np.diff(index.pts.astype(np.int64)) <= 0):
                raise VideoFileError(
                    f"{root / file}: two frames have the same presentation time, so rows cannot be "
                    "matched to frames. Record the file again."
                )
            for setup in index.configs:
                sizes.setdefault((setup.width, setup.height), str(root / file))
            videos.append(_SourceVideo(camera, file, index.num_frames, index.file_bytes))
    for (width, height), file in sizes.items():
        _check_size(spec, width, height, file)
    return videos


def _check_size(spec: RecodeSpec, width: int, height: int, file: str) -> None:
    options = spec.encoder(1)
    if width % 2 or height % 2:
        raise SelectionError(
            f"{file}: want frames of even width and height for {options.pix_fmt}, which stores one "
            f"colour for 2x2 pixels; found {width}x{height}. Crop or pad them when recording."
        )
    try:
        check_encoder(options, width=width, height=height)
    except ValueError as error:
        raise SelectionError(f"{file}: {error}") from error


def _copy(source: Path, staging: Path, name: str, *, link: bool) -> str:
    """Copy an unchanged file; return how."""
    target = staging / name
    target.unlink(missing_ok=True)  # an interrupted run may have left a part of it
    # Other files are small and may be edited in place, which would change a linked original too.
    may_link = link and name.startswith(("data/", "videos/"))
    return copy_cheaply(source / name, target, link=may_link)


def _write_info(
    videos: list[_SourceVideo],
    meta: LeRobotDatasetMetadata,
    source: Path,
    staging: Path,
    spec: RecodeSpec,
) -> None:
    """Write info.json with new entries for the re-encoded cameras."""
    info: dict[str, Any] = json.loads((source / config.INFO_PATH).read_text())
    first = {video.camera: staging / video.file for video in reversed(videos)}
    for camera, path in first.items():
        entry = info["features"][camera]
        entry.pop("video_info", None)  # where older recorders described the video
        entry["info"] = video_info(path, fps=meta.fps, encoder=spec.encoder(1))
    text = json.dumps(info, indent=4, ensure_ascii=False)
    write_bytes_atomic(staging / config.INFO_PATH, text.encode())


def _camera_bytes(videos: list[_SourceVideo], copy: Path) -> dict[str, tuple[int, int]]:
    before, after = Counter[str](), Counter[str]()
    for video in videos:
        before[video.camera] += video.size_bytes
        after[video.camera] += (copy / video.file).stat().st_size
    return {camera: (before[camera], after[camera]) for camera in before}
