# SPDX-License-Identifier: Apache-2.0
"""Finds out whether an episode can be decoded: software, dataset, files, streams, pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robostream.assemble import (
    DatasetLocation,
    OpenedDataset,
    RowReader,
    SampleOptions,
    open_dataset,
)
from robostream.config import TOLERANCE_S
from robostream.decode import FrameEngine
from robostream.errors import DatasetError, MissingExtraError, SelectionError
from robostream.meta import LeRobotDatasetMetadata
from robostream.tools.diagnose.dataset import (
    DatasetCheck,
    check_dataset,
    explain_opening,
)
from robostream.tools.diagnose.file import Problem
from robostream.tools.diagnose.gpu import Gpu, check_gpu
from robostream.tools.diagnose.pictures import check_pictures
from robostream.tools.diagnose.records import CameraCheck
from robostream.tools.diagnose.software import Software, check_software
from robostream.tools.diagnose.video import VideoCase, check_video

_OPEN_FILES = 16


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out. `dataset` is None if the dataset could not be opened.

    Each problem and each note comes with what it is about: "dataset", "rows" or a camera's name.
    """

    software: Software
    gpu: Gpu
    dataset: DatasetCheck | None
    cameras: tuple[CameraCheck, ...]
    problems: tuple[tuple[str, Problem], ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def decodes(self) -> bool:
        """Whether every picture of the episode was decoded and fits its row."""
        return not self.problems


def diagnose_episode(
    address: DatasetLocation, *, episode: int, cameras: Sequence[str] | None, device: str
) -> Diagnosis:
    """Return whether an episode of a dataset can be decoded, and if not, why.

    Args:
        address: Where the dataset is.
        episode: The episode to decode, the whole of it.
        cameras: The cameras to look at; None for all.
        device: "cpu", or "cuda"; with "cuda" a video that the GPU cannot decode is a problem.

    Raises:
        SelectionError: There is no such episode or camera.
    """
    software, gpu = check_software(), check_gpu()
    try:
        opened = open_dataset(address, SampleOptions())
    except (DatasetError, MissingExtraError, OSError) as error:
        problem = explain_opening(address, error)
        return Diagnosis(software, gpu, None, (), (("dataset", problem),), ())
    chosen = _chosen(opened.meta, episode, cameras)
    dataset = check_dataset(opened, episode)
    checks = tuple(_check_cameras(opened, dataset, chosen, gpu))
    return Diagnosis(
        software=software,
        gpu=gpu,
        dataset=dataset,
        cameras=checks,
        problems=tuple(_problems(dataset, checks, device)),
        notes=tuple(_notes(address, dataset, checks)),
    )


def _chosen(
    meta: LeRobotDatasetMetadata, episode: int, cameras: Sequence[str] | None
) -> Sequence[str]:
    if not 0 <= episode < meta.total_episodes:
        raise SelectionError(
            f"there is no episode {episode}; {meta.repo_id} has {meta.total_episodes}, numbered "
            "from 0"
        )
    strangers = [key for key in cameras or () if key not in meta.camera_keys]
    if strangers:
        raise SelectionError(
            f"there is no camera {', '.join(strangers)}; the cameras of {meta.repo_id} are "
            f"{', '.join(meta.camera_keys) or 'none'}"
        )
    return meta.camera_keys if cameras is None else cameras


def _check_cameras(
    opened: OpenedDataset, dataset: DatasetCheck, cameras: Sequence[str], gpu: Gpu
) -> Iterator[CameraCheck]:
    reader, door = None, opened.file_opener()
    if dataset.table.problem is None:
        tolerance_s = TOLERANCE_S if opened.meta.video_keys else None
        reader = RowReader(opened, door, [], tolerance_s=tolerance_s)
    # Decoded pictures are not kept, so the rate that is measured is the decoder's.
    engine = FrameEngine(door.open, budget_bytes=0, max_files=_OPEN_FILES)
    with engine:
        for key in cameras:
            if key in opened.meta.image_keys:
                yield check_pictures(opened, key, dataset.episode)
            else:
                yield check_video(VideoCase(opened, key, dataset.episode, engine, reader, gpu))
    if reader is not None:
        reader.close()


def _problems(
    dataset: DatasetCheck, cameras: Sequence[CameraCheck], device: str
) -> Iterator[tuple[str, Problem]]:
    if dataset.table.problem is not None:
        yield "rows", dataset.table.problem
    for camera in cameras:
        yield from ((camera.key, problem) for problem in camera.problems)
        if device == "cuda" and camera.gpu is not None and not camera.gpu.works:
            cure = (
                "Decode on the CPU: video_decode_device='cpu'. Or make a copy of the dataset that "
                "it decodes: robostream recode ROOT COPY --codec h264."
            )
            yield camera.key, Problem("gpu", camera.gpu.reason, cure)


def _notes(
    address: DatasetLocation, dataset: DatasetCheck, cameras: Sequence[CameraCheck]
) -> Iterator[tuple[str, str]]:
    if address.revision is not None and dataset.revision is None:
        note = f"The revision {address.revision!r} was ignored: {dataset.url} is not on the Hub."
        yield "dataset", note
    for camera in cameras:
        yield from ((camera.key, note) for note in camera.notes)
