# SPDX-License-Identifier: Apache-2.0
"""Finds saved episodes that cannot become part of the dataset and sets them aside.

One damaged episode must not keep all the others out of the dataset. It is marked as bad in its
folder, and the episodes after it get new numbers. When the others are in the dataset, its folder is
moved to `.bad-episodes/`; it is never deleted. If the process is killed anywhere in between, the
next resume goes on from there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from robostream.errors import WriteError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.storage import sync_to_disk
from robostream.write.episode_fault import episode_fault
from robostream.write.jobs import DATA, JoinJob, all_jobs, split_file
from robostream.write.renumber import renumber_saved
from robostream.write.staging import (
    StagedEpisode,
    StagingFolder,
    make_folder,
    mark_bad,
    read_record,
    remove_folder,
    rows_path,
    video_path,
    why_bad,
)

logger = logging.getLogger(__name__)


def set_bad_aside(staging: StagingFolder) -> None:
    """Mark the saved episodes that are bad, and number the others as if there were no bad ones."""
    folders = staging.episodes()
    if not folders:
        return
    meta = LeRobotDatasetMetadata(staging.root.name, root=staging.root)
    unmarked = {n: folder for n, folder in folders.items() if why_bad(folder) is None}
    checks = {n: episode_fault(n, staging, meta.info) for n in unmarked}
    faults = {n: fault for n, fault in checks.items() if fault is not None}
    if faults:
        _take_apart(staging, meta.info, list(unmarked), bad=list(faults))
    for number, fault in faults.items():
        mark_bad(folders[number], fault)
    bad = [folder for folder in folders.values() if why_bad(folder) is not None]
    if bad:
        renumber_saved(staging, meta, camera_info=_camera_info(bad))


def remove_saved(staging: StagingFolder) -> None:
    """Remove the saved episodes, which are in the dataset now; move the bad ones aside."""
    for number, folder in staging.episodes().items():
        why = why_bad(folder)
        if why is None:
            remove_folder(folder)
        else:
            kept = _keep(folder, staging.bad_episodes)
            logger.warning(
                "%s: the saved episode %d is damaged, so it is not part of the dataset, and each "
                "saved episode after it has moved up by one. It is kept in %s. What is wrong: %s",
                *(staging.root, number, kept, why),
            )


def _keep(folder: Path, bad_episodes: Path) -> Path:
    make_folder(bad_episodes)
    names = (folder.name if k == 1 else f"{folder.name}-{k}" for k in count(1))
    kept = next(bad_episodes / name for name in names if not (bad_episodes / name).exists())
    os.rename(folder, kept)
    sync_to_disk(bad_episodes)
    return kept


def _take_apart(
    staging: StagingFolder, info: DatasetInfo, numbers: Sequence[int], *, bad: Sequence[int]
) -> None:
    """Undo joins that a bad episode is part of, and joins of rows that will be renumbered."""
    records = []
    for number in numbers:
        record = _readable_record(staging.episode(number))
        if record is not None:
            records.append(record)
        elif staging.ready.exists() and not _has_all_parts(staging.episode(number), info):
            raise WriteError(
                f"{staging.episode(number)}: episode.json in it cannot be read, and the episode's "
                "rows or videos are joined with those of other episodes already, so they cannot be "
                "told apart. Bring episode.json back from a copy, then resume again."
            )
    for job in all_jobs(records):
        if (staging.ready / job.relative_path(info)).exists() and _is_affected(job, bad):
            split_file(job, staging, info)


def _is_affected(job: JoinJob, bad: Sequence[int]) -> bool:
    numbers = [episode.saved_as for episode in job.episodes]
    return max(numbers) >= min(bad) if job.stream == DATA else bool(set(numbers) & set(bad))


def _has_all_parts(folder: Path, info: DatasetInfo) -> bool:
    parts = [rows_path(folder), *(video_path(folder, key) for key in info.video_keys)]
    return all(part.exists() for part in parts)


def _camera_info(folders: Sequence[Path]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the records of bad episodes say about cameras, which others may not repeat."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        record = _readable_record(folder)
        for key, entry in (record.camera_info if record else {}).items():
            found[key] = {**found.get(key, {}), **entry}
    return found


def _readable_record(folder: Path) -> StagedEpisode | None:
    try:
        return read_record(folder)
    except WriteError:
        return None
