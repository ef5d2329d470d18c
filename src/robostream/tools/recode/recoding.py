# SPDX-License-Identifier: Apache-2.0
"""`recode_dataset`: a copy of a dataset whose colour videos are encoded anew."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from robostream import config
from robostream.errors import WriteError
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import parse_repo_url, redact, write_bytes_atomic
from robostream.tools.recode.encode import VideoJob
from robostream.tools.recode.jobs import run_jobs
from robostream.tools.recode.place import place_copy, place_same
from robostream.tools.recode.spec import RecodeSpec
from robostream.tools.recode.survey import Survey, survey
from robostream.tools.recode.workshop import workshop
from robostream.write import frame_rate, video_info


@dataclass(frozen=True, slots=True)
class RecodeReport:
    """What was made.

    Attributes:
        video_files: Videos that were encoded anew.
        frames: Their frames.
        kept_files: How many of them an interrupted run had made already.
        camera_bytes: By camera, the size of its videos before and after.
        same_files: How the other files came into the copy, and how many in each way.
        psnr_db: The lowest PSNR of the first and last picture of each video, brightness only.
    """

    path: Path
    spec: RecodeSpec
    video_files: int
    frames: int
    kept_files: int
    camera_bytes: dict[str, tuple[int, int]]
    same_files: dict[str, int]
    psnr_db: float


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

    Every frame is shown at exactly the time at which it was shown before, so rows and episode table
    stay as they are. Depth videos do too. The copy appears when it is complete; a run that was
    interrupted goes on with the files it had done.

    Args:
        root: The dataset's folder.
        copy: The folder to make; it must not exist.
        spec: How to encode.
        jobs: Processes that encode.
        cores: Cores they share.
        link: Whether data files and depth videos become hard links where the disk cannot clone.

    Raises:
        DatasetError: The dataset, or one of its videos, cannot be read.
        WriteError: The folders are not as they must be, or the disk or an encoder refuses.
        ValueError: The dataset's pictures cannot be encoded like that.
    """
    source = _local_folder(str(root))
    target = Path(copy).expanduser().absolute()
    _check_places(source, target)
    meta = LeRobotDatasetMetadata(source.name, root=source)
    found = survey(meta, source, spec)
    record = {"root": str(source), "dataset": meta.fingerprint, **spec.to_dict()}
    try:
        with workshop(target, record) as made:
            todo = _video_jobs(found, meta, source, made, spec, max(1, cores // jobs))
            kept = sum(job.target.exists() for job in todo)
            psnr_db = _encode(todo, jobs)
            same = Counter(_place(source, made, name, link=link) for name in found.same)
            _write_info(found, meta, source, made, spec)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(
            f"cannot make a copy in {target}: {error}. Free space, or choose another place."
        ) from error
    return RecodeReport(
        path=target,
        spec=spec,
        video_files=len(found.videos),
        frames=sum(video.num_frames for video in found.videos),
        kept_files=kept,
        camera_bytes={key: _camera_bytes(found, target, key) for key in found.cameras},
        same_files=dict(same),
        psnr_db=psnr_db,
    )


def _local_folder(root: str) -> Path:
    folder = Path(root).expanduser()
    if "://" not in root and folder.is_dir():
        return folder.resolve()
    parsed = parse_repo_url(root)
    name = parsed[0] if parsed else root
    is_hub_name = parsed is not None or ("://" not in root and root.count("/") == 1)
    first = (
        f"If it is a dataset on the Hub, download it first: hf download {name} --repo-type "
        "dataset --local-dir FOLDER"
        if is_hub_name and not root.startswith((".", "/", "~"))
        else "Download a remote dataset first, and give its folder."
    )
    raise WriteError(f"{redact(root)}: want a folder on this machine with a dataset in it. {first}")


def _check_places(root: Path, copy: Path) -> None:
    if copy.exists():
        raise WriteError(
            f"{copy}: want a new folder for the copy, found one that exists. Choose another, or "
            "remove it."
        )
    if copy.resolve().is_relative_to(root):
        raise WriteError(
            f"{copy}: want a folder outside the dataset {root}, found one inside it. Choose "
            "another."
        )


def _video_jobs(
    found: Survey,
    meta: LeRobotDatasetMetadata,
    source: Path,
    made: Path,
    spec: RecodeSpec,
    threads: int,
) -> list[VideoJob]:
    """Return the work, the longest videos first, so that no process is left alone with one."""
    rate, options = frame_rate(meta.fps), spec.encoder(threads)
    videos = sorted(found.videos, key=lambda video: -video.num_frames)
    return [
        VideoJob(source / video.file, made / video.file, video.num_frames, rate, options)
        for video in videos
    ]


def _encode(todo: list[VideoJob], processes: int) -> float:
    total = sum(job.num_frames for job in todo)
    with tqdm(total=total, unit=" frames", desc="recode", disable=None) as bar:
        return min(
            run_jobs(
                todo,
                processes=min(processes, len(todo)),
                on_progress=lambda frames: bar.update(frames - bar.n),
            )
        )


def _place(source: Path, made: Path, name: str, *, link: bool) -> str:
    """Put a file that stays as it is into the copy; return how."""
    target = made / name
    target.unlink(missing_ok=True)  # an interrupted run may have left a part of it
    if name.startswith(("data/", "videos/")):
        return place_same(source / name, target, link=link)
    # These are small and may be edited in place; a hard link would change the original too.
    place_copy(source / name, target)
    return "copied"


def _write_info(
    found: Survey, meta: LeRobotDatasetMetadata, source: Path, made: Path, spec: RecodeSpec
) -> None:
    """Write info.json with what is new about the cameras; everything else in it stays."""
    info: dict[str, Any] = json.loads((source / config.INFO_PATH).read_text())
    first = {video.camera: made / video.file for video in reversed(found.videos)}
    for camera, path in first.items():
        entry = info["features"][camera]
        entry.pop("video_info", None)  # where older recorders described the video
        entry["info"] = video_info(path, fps=meta.fps, encoder=spec.encoder(1))
    write_bytes_atomic(
        made / config.INFO_PATH, json.dumps(info, indent=4, ensure_ascii=False).encode()
    )


def _camera_bytes(found: Survey, made: Path, camera: str) -> tuple[int, int]:
    """Return the size of a camera's videos before and after."""
    videos = [video for video in found.videos if video.camera == camera]
    after = sum((made / video.file).stat().st_size for video in videos)
    return sum(video.size_bytes for video in videos), after
