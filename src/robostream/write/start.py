# SPDX-License-Identifier: Apache-2.0
"""Opens a writer on a new dataset, or on an existing one to add episodes.

Before episodes are added, those that an interrupted recording saved are published. A damaged one is
marked in its folder, and the episodes after it get new numbers. Once the others are in the dataset,
`publish` moves its folder to `.bad-episodes/`; it is never deleted. If the process is killed at any
point, the next resume continues from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import av
import pyarrow as pa

from robostream import arguments, config
from robostream.errors import MetadataError, WriteError
from robostream.meta import (
    DatasetInfo,
    DepthCoding,
    LeRobotDatasetMetadata,
    as_lists,
    column_stats,
    parse_info,
)
from robostream.storage import as_location, write_bytes_atomic
from robostream.write.encoder_options import (
    DepthEncoderConfig,
    RecordingOptions,
    VideoEncoderConfig,
)
from robostream.write.frames import features_to_record, text_fault
from robostream.write.join import (
    iter_packets,
    plan_joins,
    read_rows,
    saved_part,
    undo_join,
    write_rows,
)
from robostream.write.publish import finish_publishing, publish_saved
from robostream.write.saved_episodes import (
    FilePlace,
    StagedEpisode,
    add_tasks,
    counter_columns,
    load_staged,
    mark_damaged,
    read_damage,
    read_record,
    replace_record,
)
from robostream.write.staging import StagingFolder, WriterLock, move_durably, part_path
from robostream.write.writer import DatasetWriter, wrap_errors


def create_writer(
    root: str | Path,
    *,
    fps: int,
    features: Mapping[str, Any],
    robot_type: str | None = None,
    use_videos: bool = True,
    chunks_size: int = config.CHUNKS_SIZE,
    data_files_size_in_mb: float = config.DATA_FILES_SIZE_IN_MB,
    video_files_size_in_mb: float = config.VIDEO_FILES_SIZE_IN_MB,
    encoder: VideoEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    queue_frames: int = config.ENCODER_QUEUE_FRAMES,
) -> DatasetWriter:
    """Return a writer on a new, empty dataset.

    Args:
        root: The dataset's folder, which must be new or empty; "~" is the home folder.
        fps: Frames per second.
        features: By name, `{"dtype", "shape", "names"}` of each camera and column; the default
            features are added.
        robot_type: The robot's name.
        use_videos: Whether cameras may be stored as video.
        chunks_size: Most files per chunk folder.
        data_files_size_in_mb: Size at which a new Parquet file begins.
        video_files_size_in_mb: Size at which a new MP4 begins.
        encoder: The encoder of colour cameras.
        depth_encoder: The encoder of depth cameras.
        queue_frames: Images that may wait for one encoder before add_frame() blocks.
    """
    root = _recording_folder(root)
    use_videos = arguments.truth(use_videos, "use_videos")
    options = RecordingOptions(
        encoder or VideoEncoderConfig(), depth_encoder or DepthEncoderConfig(), queue_frames
    )
    info = DatasetInfo(
        fps=arguments.number(fps, "fps"),  # type: ignore[arg-type]  # readers take 29.97, too
        features=features_to_record(features, use_videos=use_videos),
        robot_type=arguments.of_kind(robot_type, "robot_type", str | None, "a text"),
        chunks_size=arguments.whole_number(chunks_size, "chunks_size", least=1),
        data_files_size_in_mb=arguments.number(data_files_size_in_mb, "data_files_size_in_mb"),
        video_files_size_in_mb=arguments.number(video_files_size_in_mb, "video_files_size_in_mb"),
        video_path=config.VIDEO_PATH if use_videos else None,
    )
    info.check("create")
    if fault := text_fault(info.to_json()):
        raise MetadataError(f"{config.INFO_PATH} of the new dataset: {fault}")
    options.check_cameras(info)
    _check_free(root)
    staging = StagingFolder(root)
    cure = "Choose another folder, or free some space."
    with _lock(staging, "a new dataset", cure=cure) as lock:
        staging.clean()
        write_bytes_atomic(root / config.INFO_PATH, info.to_json().encode())
        return DatasetWriter(LeRobotDatasetMetadata(root.name, root=root), staging, lock, options)


def resume_writer(
    root: str | Path,
    *,
    encoder: VideoEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    queue_frames: int = config.ENCODER_QUEUE_FRAMES,
) -> DatasetWriter:
    """Return a writer that adds episodes to a dataset, in new files.

    Episodes saved by an interrupted recording are published first; a damaged one is moved to
    `.bad-episodes/` instead, with a warning. An encoder that is not given is taken from info.json.
    """
    root = _recording_folder(root)
    path = root / config.INFO_PATH
    if not path.is_file():
        raise WriteError(
            f"{root}: found no {config.INFO_PATH}, so there is no dataset to resume. Give the "
            "folder of one, or create one."
        )
    version = parse_info(path.read_bytes(), str(path)).codebase_version
    if version != config.CODEBASE_VERSION:
        raise WriteError(
            f"{root}: the dataset has version {version}, which robostream reads but does not "
            f"write. Convert it to {config.CODEBASE_VERSION} with `robostream convert`, then "
            "resume that."
        )
    staging = StagingFolder(root)
    cure = "Make sure that there is space and the folder may be written to, then resume again."
    with _lock(staging, "the saved episodes", cure=cure) as lock:
        finish_publishing(staging)
        exclude_damaged(staging)
        publish_saved(staging)
        meta = LeRobotDatasetMetadata(root.name, root=root)
        options = _resumed_options(meta.info, encoder, depth_encoder, queue_frames)
        options.check_cameras(meta.info)
        return DatasetWriter(meta, staging, lock, options)


@contextmanager
def _lock(staging: StagingFolder, what: str, *, cure: str) -> Iterator[WriterLock]:
    """Lock a dataset for the writer made in this block; an error releases the lock."""
    with wrap_errors(what, staging.root, cure=cure):
        lock = WriterLock(staging.path)
        try:
            yield lock
        except BaseException:
            lock.drop()
            raise


def _recording_folder(root: str | Path) -> Path:
    # An absolute path, since a program may change its working directory while it records.
    folder = as_location(arguments.of_kind(root, "root", str | PathLike, "a path")).local_root
    if folder is None:
        raise WriteError(
            f"{root}: want a local folder to record into, found a URL. Record locally, then copy "
            "the finished dataset there."
        )
    return folder


def _check_free(root: Path) -> None:
    # A killed create_writer() may leave a lock and a partial file.
    files = (p for p in root.rglob("*") if p.is_file() and p.name != "lock" and p.suffix != ".part")
    if (found := next(files, None)) is not None:
        raise WriteError(
            f"{root}: want a new or empty folder, found {found.relative_to(root)} in it. Choose "
            "another folder, delete this one, or resume the dataset in it."
        )


def _resumed_options(
    info: DatasetInfo,
    encoder: VideoEncoderConfig | None,
    depth_encoder: DepthEncoderConfig | None,
    queue_frames: int,
) -> RecordingOptions:
    colour = _recorded_block(info, is_depth=False)
    depth = _recorded_block(info, is_depth=True)
    try:
        encoder = encoder or VideoEncoderConfig.from_info(colour)
        depth_encoder = depth_encoder or DepthEncoderConfig.from_info(depth)
    except ValueError as error:
        raise ValueError(
            f"the encoder that info.json describes cannot be used: {error}. Pass the encoder to "
            "resume with."
        ) from error
    options = RecordingOptions(encoder, depth_encoder, queue_frames)
    if depth and depth_encoder.coding != DepthCoding.from_info(depth):
        raise ValueError(
            f"want the depth coding of this dataset, {DepthCoding.from_info(depth)}, found "
            f"{depth_encoder.coding}; readers would decode wrong distances. Omit depth_encoder to "
            "continue with the dataset's coding."
        )
    return options


def _recorded_block(info: DatasetInfo, *, is_depth: bool) -> Mapping[str, Any]:
    """Return the `info` block of the first colour or depth camera that has a video."""
    for key in info.video_keys:
        block: Mapping[str, Any] = info.features[key].get("info") or {}
        if (key in info.depth_keys) == is_depth and "video.codec" in block:
            return block
    return {}


def exclude_damaged(staging: StagingFolder) -> None:
    """Mark the damaged saved episodes, and number the others as if those did not exist."""
    folders = staging.episodes()
    if not folders:
        return
    meta = LeRobotDatasetMetadata(staging.root.name, root=staging.root)
    records: list[StagedEpisode] = []
    found: dict[int, str] = {}  # what is wrong with episodes that are not marked yet
    for number, folder in folders.items():
        if read_damage(folder) is not None:
            continue
        try:
            record = read_record(folder)
        except WriteError as error:
            _check_separable(folder, staging, meta.info)
            found[number] = str(error)
            continue
        records.append(record)
        if damage := find_damage(record, staging, meta.info):
            found[number] = damage
    # Joined files that contain a damaged episode, or rows that may get new numbers, are split.
    for job in plan_joins(records, meta.info, partial(saved_part, staging)) if found else []:
        is_concerned = job.camera is None or not found.keys().isdisjoint(job.episodes)
        if is_concerned and (staging.ready / job.path).exists():
            undo_join(job, staging)
    for number, damage in found.items():
        mark_damaged(folders[number], damage)
    _renumber(staging, meta)


def find_damage(record: StagedEpisode, staging: StagingFolder, info: DatasetInfo) -> str | None:
    """Return what is wrong with a saved episode, or None if it is complete.

    Rows and videos that are already joined were complete then and are not read again. Raises
    OSError if the disk cannot be read, which says nothing about the episode.
    """
    for task in record.tasks:
        if fault := text_fault(task):
            return f"task: {fault}"
    if set(record.videos) != set(info.video_keys):
        return f"want a video of each of {info.video_keys}, found {list(record.videos)}"
    for job in plan_joins([record], info, partial(saved_part, staging)):
        if (staging.ready / job.path).exists():
            continue
        path = job.parts[0].path
        if not path.exists():
            return f"{path.name}: the file is missing"
        is_rows = job.camera is None
        damage = _rows_damage(path, record) if is_rows else _video_damage(path, record, job.rate)
        if damage is not None:
            return f"{path.name}: {damage}"
    return None


def _rows_damage(path: Path, record: StagedEpisode) -> str | None:
    try:
        table = read_rows(path)
        num_tasks = len(table["task_index"].unique())
    except (KeyError, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return f"not a complete Parquet file: {error}"
    if table.num_rows != record.num_frames:
        return f"want {record.num_frames} rows, found {table.num_rows}"
    if num_tasks != len(record.tasks):
        return f"want {len(record.tasks)} tasks in the rows, found {num_tasks}"
    return None


def _video_damage(path: Path, record: StagedEpisode, rate: Fraction) -> str | None:
    try:
        num_frames = sum(1 for _ in iter_packets(path, rate))
    except (av.InvalidDataError, av.EOFError, IndexError, WriteError) as error:
        return f"not a complete MP4: {error}"
    if num_frames != record.num_frames:
        return f"want {record.num_frames} frames, found {num_frames}"
    return None


def _check_separable(folder: Path, staging: StagingFolder, info: DatasetInfo) -> None:
    """Raise if parts of an episode whose record is lost are joined with those of others."""
    parts = [part_path(folder, key) for key in (None, *info.video_keys)]
    if staging.ready.exists() and not all(part.exists() for part in parts):
        raise WriteError(
            f"{folder}: its episode.json cannot be read, and the episode's rows or videos are "
            "already joined with those of other episodes, so they cannot be separated. Bring "
            "episode.json back from a copy, then resume again."
        )


def _renumber(staging: StagingFolder, meta: LeRobotDatasetMetadata) -> None:
    """Continue the dataset's numbers without a gap in the saved episodes' rows and records."""
    # Rows of episodes whose number changes are not joined. Each episode's rows are replaced before
    # its record. If the process is killed in between, the record has the old number, and the next
    # call writes the same rows again.
    tasks, start_frame = list(meta.tasks), meta.total_frames
    filled: defaultdict[tuple[str, FilePlace], int] = defaultdict(int)
    saved = load_staged(staging, first=meta.total_episodes)
    for number, old in enumerate(saved, start=meta.total_episodes):
        videos = {}
        for key, video in old.videos.items():
            videos[key] = replace(video, start_frame=filled[key, video.place])
            filled[key, video.place] += old.num_frames
        new = replace(old, episode_index=number, start_frame=start_frame, videos=videos)
        start_frame += old.num_frames
        tasks = add_tasks(tasks, old.tasks)
        if number != old.episode_index:
            counters = _rewrite_counters(staging, new, tasks)
            stats = {name: as_lists(column_stats(values)) for name, values in counters.items()}
            record = replace(new, stats={**new.stats, **stats})
            replace_record(staging.episode(new.saved_as), record)


def _rewrite_counters(
    staging: StagingFolder, episode: StagedEpisode, tasks: Sequence[str]
) -> Mapping[str, Any]:
    """Replace the columns of an episode's rows that depend on its number, and return them."""
    path = part_path(staging.episode(episode.saved_as), None)
    table = read_rows(path)
    old_numbers = table["task_index"].to_pylist()
    # The record lists the episode's tasks in the order in which they appear in its rows.
    text_of = dict(zip(dict.fromkeys(old_numbers), episode.tasks, strict=True))
    counters = counter_columns(
        [text_of[number] for number in old_numbers],
        episode_index=episode.episode_index,
        start_frame=episode.start_frame,
        known_tasks=tasks,
    )
    for name, values in counters.items():
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        table = table.set_column(index, field, pa.array(values, field.type))
    temp = staging.temp_path(path)
    write_rows(table, temp)
    move_durably(temp, path)
    return counters
