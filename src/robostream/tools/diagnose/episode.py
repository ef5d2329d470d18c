# SPDX-License-Identifier: Apache-2.0
"""Finds out whether an episode can be decoded: software, dataset, rows, and each camera."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from robostream.assemble import (
    DatasetLocation,
    OpenedDataset,
    RowReader,
    SampleOptions,
    open_dataset,
)
from robostream.config import TOLERANCE_S
from robostream.decode import FrameEngine
from robostream.errors import (
    CompatibilityError,
    DatasetError,
    MissingExtraError,
    MissingRevisionError,
    SelectionError,
    StorageError,
)
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import FileOpener, as_location, list_refs
from robostream.tools.diagnose.camera import CameraCheck, check_images, read_rows
from robostream.tools.diagnose.file import FileCheck, Problem, check_file
from robostream.tools.diagnose.machine import Gpu, Software, check_gpu, check_software
from robostream.tools.diagnose.video import VideoInputs, check_video

_OPEN_FILES = 16
_GPU_CURE = (
    "Decode on the CPU: video_decode_device='cpu'. Or make a copy of the dataset that it decodes: "
    "robostream recode ROOT COPY --codec h264."
)


@dataclass(frozen=True, slots=True)
class DatasetCheck:
    """The dataset and the episode that were found.

    Attributes:
        meta_url: Where meta/ was read.
        url: Where data/ and videos/ are read.
        revision: The commit that was read, for a dataset on the Hub.
        num_frames: Frames of the episode.
        table: The Parquet file of the episode's rows.
    """

    meta_url: str
    url: str
    revision: str | None
    codebase_version: str
    fps: float
    total_episodes: int
    total_frames: int
    episode: int
    num_frames: int
    table: FileCheck


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings. `dataset` is None if the dataset could not be opened.

    Each problem and each note comes with its subject: "dataset", "rows" or a camera's name.
    """

    software: Software
    gpu: Gpu
    dataset: DatasetCheck | None
    cameras: tuple[CameraCheck, ...]
    problems: tuple[tuple[str, Problem], ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def decodes(self) -> bool:
        """Whether every frame of the episode was decoded and matches its row."""
        return not self.problems


def diagnose_episode(
    location: DatasetLocation, *, episode: int, cameras: Sequence[str] | None, device: str
) -> Diagnosis:
    """Return whether an episode of a dataset can be decoded, and if not, why.

    Args:
        location: Where the dataset is.
        episode: The episode to decode as a whole.
        cameras: The cameras to check; None for all.
        device: "cpu" or "cuda"; with "cuda", a video that the GPU cannot decode is a problem.

    Raises:
        SelectionError: There is no such episode or camera.
    """
    software, gpu = check_software(), check_gpu()
    try:
        opened = open_dataset(location, SampleOptions())
    except (DatasetError, MissingExtraError, OSError) as error:
        problem = _explain_opening(location, error)
        return Diagnosis(software, gpu, None, (), (("dataset", problem),), ())
    selected = _select_cameras(opened.meta, episode, cameras)
    dataset = _check_dataset(opened, episode)
    checks = tuple(_check_cameras(opened, dataset, selected, gpu))
    notes = []
    if location.revision is not None and dataset.revision is None:
        note = f"The revision {location.revision!r} was ignored: {dataset.url} is not on the Hub."
        notes.append(("dataset", note))
    return Diagnosis(
        software=software,
        gpu=gpu,
        dataset=dataset,
        cameras=checks,
        problems=tuple(_list_problems(dataset, checks, device)),
        notes=(*notes, *((camera.key, note) for camera in checks for note in camera.notes)),
    )


def _explain_opening(location: DatasetLocation, error: Exception) -> Problem:
    """Return why a dataset cannot be opened."""
    placeholder = _find_placeholder(location)
    if placeholder is not None:
        return placeholder
    if isinstance(error.__cause__, MissingRevisionError):
        return Problem("revision", str(error), _list_revisions(location.repo_id))
    if isinstance(error, MissingExtraError):
        return Problem("missing_package", str(error), "")
    kind = "version" if isinstance(error, CompatibilityError) else "metadata"
    return Problem(kind, str(error), "")


def _find_placeholder(location: DatasetLocation) -> Problem | None:
    """Return the problem of the first table in a local meta/ that is not a Parquet file."""
    root = as_location(location.root or location.repo_id)
    tables = FileOpener(root).list_files("meta", ".parquet") if root.local_root is not None else []
    problems = (check_file(root, table, want="parquet").problem for table in tables)
    return next((problem for problem in problems if problem is not None), None)


def _list_revisions(repo_id: str) -> str:
    """Return a sentence that lists the revisions of a Hub repository."""
    repo_id = repo_id.removeprefix("hf://datasets/").split("@")[0]
    try:
        names = list_refs(repo_id, token=None)
    except StorageError:
        names = None
    if names is None:
        return ""
    return f"Its branches and tags are {', '.join(names)}; a commit's full hash works too."


def _select_cameras(
    meta: LeRobotDatasetMetadata, episode: int, cameras: Sequence[str] | None
) -> Sequence[str]:
    if not 0 <= episode < meta.total_episodes:
        raise SelectionError(
            f"there is no episode {episode}; {meta.repo_id} has {meta.total_episodes}, numbered "
            "from 0"
        )
    unknown = [key for key in cameras or () if key not in meta.camera_keys]
    if unknown:
        raise SelectionError(
            f"there is no camera {', '.join(unknown)}; the cameras of {meta.repo_id} are "
            f"{', '.join(meta.camera_keys) or 'none'}"
        )
    return meta.camera_keys if cameras is None else cameras


def _check_dataset(dataset: OpenedDataset, episode: int) -> DatasetCheck:
    meta = dataset.meta
    # In the Hub's cache, the folder of a commit has the commit's name.
    is_pinned = str(meta.root).endswith(f"/{meta.revision}")
    file = meta.get_data_file_path(episode).as_posix()
    table = check_file(dataset.files, file, want="parquet")
    if table.problem is None:
        try:
            read_rows(dataset, episode, [], cure="")
        except Problem as problem:
            table = replace(table, problem=problem)
    return DatasetCheck(
        meta_url=str(meta.root),
        url=dataset.files.url,
        revision=meta.revision if is_pinned else None,
        codebase_version=meta.info.codebase_version,
        fps=meta.fps,
        total_episodes=meta.total_episodes,
        total_frames=meta.total_frames,
        episode=episode,
        num_frames=int(meta.episodes["length"][episode]),
        table=table,
    )


def _check_cameras(
    opened: OpenedDataset, dataset: DatasetCheck, cameras: Sequence[str], gpu: Gpu
) -> Iterator[CameraCheck]:
    reader, opener = None, opened.file_opener()
    if dataset.table.problem is None:
        tolerance_s = TOLERANCE_S if opened.meta.video_keys else None
        reader = RowReader(opened, opener, [], tolerance_s=tolerance_s)
    # Decoded frames are not kept, so the measured rate is the decoder's.
    engine = FrameEngine(opener.open, budget_bytes=0, max_files=_OPEN_FILES)
    with engine:
        for key in cameras:
            if key in opened.meta.image_keys:
                yield check_images(opened, key, dataset.episode)
            else:
                yield check_video(VideoInputs(opened, key, dataset.episode, engine, reader, gpu))
    if reader is not None:
        reader.close()


def _list_problems(
    dataset: DatasetCheck, cameras: Sequence[CameraCheck], device: str
) -> Iterator[tuple[str, Problem]]:
    if dataset.table.problem is not None:
        yield "rows", dataset.table.problem
    for camera in cameras:
        yield from ((camera.key, problem) for problem in camera.problems)
        if device == "cuda" and camera.gpu is not None and not camera.gpu.works:
            yield camera.key, Problem("gpu", camera.gpu.reason, _GPU_CURE)
