# SPDX-License-Identifier: Apache-2.0
"""`convert_dataset`: a v2.0 or v2.1 dataset as v3.0, without re-encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from robostream import arguments, config
from robostream.errors import SelectionError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.tools.child_processes import run_jobs
from robostream.tools.convert.files import make_file
from robostream.tools.convert.sources import (
    SourceEpisode,
    inspect_episode,
    list_episodes,
    place_episodes,
    plan_files,
    warn_of_losses,
)
from robostream.tools.convert.tables import converted_info, write_tables
from robostream.tools.staging import (
    copy_durably,
    local_folder,
    new_folder,
    staging_folder,
    visible_files,
)
from robostream.write import EpisodeFile, JoinJob, row_schema

# Episodes that a child inspects at a time.
_INSPECTED_AT_A_TIME = 64
# Files that the copy has in other forms, or that only recorders need.
_REPLACED = (
    *(config.INFO_PATH, config.STATS_PATH, config.TASKS_PATH),
    *(config.V2_EPISODES_PATH, config.V2_TASKS_PATH, config.V2_STATS_PATH),
)
_REPLACED_FOLDERS = ("data/", "videos/", "images/", "meta/episodes/")


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What was made.

    Attributes:
        version: The version of the source.
        source_files: Data and video files of the source.
        files: Those of the copy.
        kept_files: How many of them an interrupted run had made already.
        copied_files: Other files, such as README.md, copied as they are.
    """

    path: Path
    version: str
    episodes: int
    frames: int
    cameras: int
    source_files: int
    files: int
    kept_files: int
    copied_files: int


def convert_dataset(
    root: str | Path,
    copy: str | Path,
    *,
    jobs: int = 1,
    data_files_size_in_mb: float = config.DATA_FILES_SIZE_IN_MB,
    video_files_size_in_mb: float = config.VIDEO_FILES_SIZE_IN_MB,
) -> ConvertReport:
    """Make a v3.0 copy of a local v2.0 or v2.1 dataset.

    Rows and video packets are copied, and compared with the source. Nothing is decoded. The copy
    appears when it is complete. An interrupted run resumes: files that are complete, and still
    equal to the source, stay.

    Args:
        root: The dataset's folder.
        copy: The folder to make; it must not exist.
        jobs: Processes that join files; one does it in this process.
        data_files_size_in_mb: The size at which a new Parquet file begins.
        video_files_size_in_mb: The size at which a new MP4 file begins.

    Raises:
        DatasetError: The dataset, or one of its files, cannot be read.
        SelectionError: The dataset is not v2.0 or v2.1.
        WriteError: A folder is unsuitable, the disk fails, or a joined file differs.
    """
    source = local_folder(str(root))
    target = new_folder(copy, source)
    meta = LeRobotDatasetMetadata(source.name, root=source)
    if not meta.info.is_v2:
        raise SelectionError(
            f"{source}: want a dataset of v2.0 or v2.1, found {meta.info.codebase_version}, which "
            "needs no conversion"
        )
    meta.ensure_readable()
    limits = {
        "data_files_size_in_mb": arguments.number(data_files_size_in_mb, "data_files_size_in_mb"),
        "video_files_size_in_mb": arguments.number(
            video_files_size_in_mb, "video_files_size_in_mb"
        ),
    }
    jobs = arguments.whole_number(jobs, "jobs", least=1)
    info = converted_info(meta, **limits)
    record = {"root": str(source), "dataset": meta.fingerprint, **limits}
    with staging_folder(target, record, doing="converting") as staging:
        episodes = list_episodes(meta, source)
        inspected = _inspect(episodes, info, jobs)
        warn_of_losses(meta, episodes[0])
        placed = place_episodes(meta, inspected, info)
        todo = plan_files(placed, inspected, info)
        _remove_unplanned(todo, staging)
        frames = sum(job.num_frames for job in todo)
        kept = sum(_run(partial(make_file, staging, info), todo, jobs, "convert", frames))
        write_tables(meta, placed, info, staging)
        others = _copy_others(source, episodes, staging)
    return ConvertReport(
        path=target,
        version=meta.info.codebase_version,
        episodes=meta.total_episodes,
        frames=meta.total_frames,
        cameras=len(meta.video_keys),
        source_files=sum(map(len, inspected)),
        files=len(todo),
        kept_files=kept,
        copied_files=len(others),
    )


def inspect_in_child(
    job: tuple[Sequence[SourceEpisode], DatasetInfo], send: Callable[[int], object]
) -> list[dict[str | None, EpisodeFile]]:
    """Return what the files of some episodes hold."""
    episodes, info = job
    columns = row_schema(info.features).names
    found = [inspect_episode(episode, columns, info.fps) for episode in episodes]
    send(sum(episode.num_frames for episode in episodes))
    return found


def _inspect(
    episodes: Sequence[SourceEpisode], info: DatasetInfo, processes: int
) -> list[Mapping[str | None, EpisodeFile]]:
    step = _INSPECTED_AT_A_TIME
    todo = [(episodes[at : at + step], info) for at in range(0, len(episodes), step)]
    frames = sum(episode.num_frames for episode in episodes)
    found = _run(inspect_in_child, todo, processes, "inspect", frames)
    return [files for some in found for files in some]


def _run(
    function: Callable[[Any, Callable[[int], object]], Any],
    jobs: Sequence[Any],
    processes: int,
    label: str,
    frames: int,
) -> list[Any]:
    """Return the results of all jobs; one process alone needs no child."""
    processes = 0 if min(processes, len(jobs)) == 1 else processes
    return run_jobs(function, jobs, processes=processes, label=label, frames=frames)


def _remove_unplanned(jobs: Sequence[JoinJob], staging: Path) -> None:
    """Remove files of an interrupted run that the copy, as its source is now, does not have."""
    planned = {staging / job.path for job in jobs}
    for path in staging.rglob("*"):
        if path.is_file() and path not in planned:
            path.unlink()


def _copy_others(source: Path, episodes: Sequence[SourceEpisode], staging: Path) -> list[str]:
    """Copy the files that stay as they are; return their names."""
    joined = {path for episode in episodes for path in episode.files.values()}
    others = [
        name
        for name in visible_files(source)
        if name not in _REPLACED
        and not name.startswith(_REPLACED_FOLDERS)
        and source / name not in joined
    ]
    for name in others:
        copy_durably(source / name, staging / name)
    return others
