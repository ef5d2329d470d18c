# SPDX-License-Identifier: Apache-2.0
"""The files of a v2.x dataset, the file of the v3.0 copy that each goes to, joined and compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robostream import write
from robostream.assemble import check_episode, check_times
from robostream.decode import FrameIndex, build_index
from robostream.errors import (
    DamagedFileError,
    DataFileError,
    MissingFileError,
    RobostreamError,
    VideoFileError,
    WriteError,
)
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.storage import LocalSource
from robostream.tools.staging import new_file

logger = logging.getLogger(__name__)

EpisodeFiles = Mapping[str | None, write.EpisodeFile]

# What says which frames the rows of a file are.
_NUMBERS = pa.schema(
    [("episode_index", pa.int64()), ("frame_index", pa.int64()), ("timestamp", pa.float64())]
)
# Integers as wide as the floating-point numbers, whose bits they are compared by.
_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


@dataclass(frozen=True, slots=True)
class SourceEpisode:
    """The files of an episode by camera; None stands for its rows."""

    number: int
    num_frames: int
    files: Mapping[str | None, Path]


def list_episodes(meta: LeRobotDatasetMetadata, root: Path) -> list[SourceEpisode]:
    """Return the files of every episode, as the templates of info.json name them."""
    episodes = []
    for number in range(meta.total_episodes):
        files: dict[str | None, Path] = {None: root / meta.get_data_file_path(number)}
        files |= {key: root / meta.get_video_file_path(number, key) for key in meta.video_keys}
        episodes.append(SourceEpisode(number, int(meta.episodes["length"][number]), files))
    return episodes


def warn_of_losses(meta: LeRobotDatasetMetadata, first: SourceEpisode) -> None:
    """Log a warning of what v3.0 files do not take: undeclared columns, and sound."""
    undeclared = sorted({*pq.read_schema(first.files[None]).names} - {*meta.features})
    if undeclared:
        told = "%s: the columns %s are not in info.json, so they are left out"
        logger.warning(told, first.files[None], ", ".join(undeclared))
    loud = [key for key in meta.video_keys if sound_blocks(meta.features[key])]
    if loud:
        logger.warning("%s: the sound of %s is left out", meta.root, ", ".join(loud))


def sound_blocks(feature: Mapping[str, Any]) -> list[str]:
    """Return the blocks of a camera in info.json that say its videos have sound. Pure."""
    blocks = ("info", "video_info")  # early recorders of v2.0 wrote the second
    return [name for name in blocks if (feature.get(name) or {}).get("has_audio")]


def inspect_episodes(
    info: DatasetInfo, episodes: Sequence[SourceEpisode], on_frames: Callable[[int], object]
) -> list[EpisodeFiles]:
    """Return what the files of some episodes hold, or raise.

    DataFileError: the rows are not those of the episode. VideoFileError: a video cannot be joined
    with others without moving its frames in time.
    """
    columns, rate = write.row_schema(info.features).names, write.frame_rate(info.fps)
    found: list[EpisodeFiles] = [
        {None: _inspect_rows(episode, columns, info.fps)}
        | {key: _inspect_video(episode, key, rate) for key in info.video_keys}
        for episode in episodes
    ]
    on_frames(sum(episode.num_frames for episode in episodes))
    return found


def stored_schema(path: Path, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns of a data file, without metadata of the file."""
    schema = pq.read_schema(path)
    return pa.schema([schema.field(name) for name in columns])


def _inspect_rows(episode: SourceEpisode, columns: Sequence[str], fps: float) -> write.EpisodeFile:
    path = episode.files[None]
    try:
        metadata = pq.read_metadata(path)
        schema = stored_schema(path, columns)
        rows = pq.read_table(path, columns=_NUMBERS.names).cast(_NUMBERS)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataFileError(
            f"{path}: want a Parquet file with the columns {', '.join(columns)}, which info.json "
            f"names: {error}. Copy the file again."
        ) from error
    if metadata.num_rows != episode.num_frames:
        raise DataFileError(
            f"{path}: want the {episode.num_frames} frames that meta/episodes.jsonl has for "
            f"episode {episode.number}, found {metadata.num_rows} rows. Correct the length there, "
            "or copy the file again."
        )
    numbers = {name: rows.column(name).to_numpy() for name in _NUMBERS.names}
    check_episode(numbers, episode.number, episode.num_frames, str(path))
    # Rows half a frame off belong to another frame: in a joined video, even of another episode.
    where = f"{path}: episode {episode.number}"
    check_times(numbers["timestamp"], numbers["frame_index"], fps, 0.5 / fps, where)
    kind = write.digest(str(schema).encode())
    return write.EpisodeFile(path, path.stat().st_size, metadata.num_rows, 0, kind)


def _inspect_video(episode: SourceEpisode, camera: str, rate: Fraction) -> write.EpisodeFile:
    path = episode.files[camera]
    try:
        index = build_index(LocalSource(path))
    except (MissingFileError, DamagedFileError) as error:
        raise VideoFileError(str(error)) from error
    where = f"{path}, episode {episode.number}"
    if index.num_frames < episode.num_frames:
        raise VideoFileError(
            f"{where}: want a frame for each of its {episode.num_frames} rows, found "
            f"{index.num_frames} frames. Record the episode again, or leave it out."
        )
    stored = np.arange(len(index.sizes)) if index.frames is None else np.asarray(index.frames)
    if not is_regular(index, rate) or len(index.configs) > 1 or stored.min() < 0:
        raise VideoFileError(
            f"{where}: want frames at 0, 1/{float(rate):g}, 2/{float(rate):g} s ... with one codec "
            "configuration, found others, so the video cannot be joined with others without "
            "moving frames in time. robostream also streams the dataset as it is, without a "
            "conversion."
        )
    setup = index.configs[0]
    parameters = f"{setup.decoder} {setup.width}x{setup.height} {setup.extradata.hex()}"
    return write.EpisodeFile(
        path,
        index.file_bytes,
        index.num_frames,
        reorder_frames=int(max(np.arange(len(stored)) - stored)),
        parameters=write.digest(parameters.encode()),
    )


def is_regular(index: FrameIndex, rate: Fraction) -> bool:
    """Return whether frame k is shown at exactly k / rate. Pure."""
    ticks = index.time_base * rate
    frames = np.arange(index.num_frames, dtype=np.int64)
    shown = index.pts.astype(np.int64) * ticks.numerator
    return np.array_equal(shown, frames * ticks.denominator)


def place_episodes(
    meta: LeRobotDatasetMetadata, files: Sequence[EpisodeFiles], info: DatasetInfo
) -> list[write.StagedEpisode]:
    """Return where the files of each episode go, by the size limits of `info`. Pure.

    An episode is never divided. A file that would exceed its limit, or whose parameters differ,
    begins a new file of the copy.
    """
    starts, lengths = meta.episodes["dataset_from_index"], meta.episodes["length"]
    tasks = meta.episodes["tasks"]
    totals = {key: write.FileTotals(write.FilePlace(0, 0)) for key in files[0]}
    placed = []
    for number, own in enumerate(files):
        totals, places = write.place_files(totals, own, info)
        episode = write.StagedEpisode(
            saved_as=number,
            episode_index=number,
            start_frame=int(starts[number]),
            num_frames=int(lengths[number]),
            tasks=tasks[number],
            data=places[None].place,
            videos={key: place for key, place in places.items() if key is not None},
            stats={},
            camera_info={},
        )
        placed.append(episode)
    return placed


def plan_files(
    episodes: Sequence[write.StagedEpisode], files: Sequence[EpisodeFiles], info: DatasetInfo
) -> list[write.JoinJob]:
    """Return the files of the copy, the largest first: no process ends alone with a large one."""

    def part_of(episode: write.StagedEpisode, key: str | None) -> write.VideoPart:
        file = files[episode.saved_as][key]
        start_frame = 0 if key is None else episode.videos[key].start_frame
        return write.VideoPart(file.path, start_frame, file.num_frames, file.reorder_frames)

    return sorted(write.plan_joins(episodes, info, part_of), key=lambda job: -job.num_frames)


def make_file(
    staging: Path, info: DatasetInfo, job: write.JoinJob, on_frames: Callable[[int], object]
) -> bool:
    """Make the file of a job, and return whether an earlier run had made it.

    It has its name once it was compared. A file of an earlier run is compared again: its source
    may have changed. Raises WriteError, or DataFileError if the rows of a part are damaged.
    """
    target, is_kept = staging / job.path, False
    if target.exists():
        try:
            _compare(job, info, target)
            is_kept = True
        except (RobostreamError, pa.ArrowException, OSError) as error:
            logger.warning("%s is made again, because the source has changed: %s", target, error)
    if not is_kept:
        with new_file(target) as part:
            _join(job, info, part)
            _compare(job, info, part)
    on_frames(job.num_frames)
    return is_kept


def _join(job: write.JoinJob, info: DatasetInfo, target: Path) -> None:
    described = write.row_schema(info.features)
    first, last = job.parts[0].path, job.parts[-1].path
    schema = None
    if job.camera is None:
        schema = stored_schema(first, described.names).with_metadata(described.metadata)
    try:
        job.make(target, schema)
    except pa.ArrowException as error:
        raise DataFileError(
            f"a file from {first} to {last} cannot be read: {error}. Copy them again."
        ) from error


def _compare(job: write.JoinJob, info: DatasetInfo, target: Path) -> None:
    """Raise WriteError unless a file holds the parts of a job, and nothing else."""
    if job.camera is not None:
        compare_videos(job.parts, target, job.rate)
        return
    names = write.row_schema(info.features).names
    with pq.ParquetFile(target, page_checksum_verification=True) as joined:
        if joined.num_row_groups != len(job.parts):
            raise _differ(target, f"{len(job.parts)} row groups")
        for number, part in enumerate(job.parts):
            want, found = write.read_rows(part.path).select(names), joined.read_row_group(number)
            for key in info.image_keys:
                if missing := pc.struct_field(want.column(key), "bytes").null_count:
                    raise DataFileError(
                        f"{part.path}: want the encoded image in each row of {key}, found "
                        f"{missing} rows with at most its path. Write the images into the rows."
                    )
            if not has_equal_bits(want, found):
                raise _differ(target, f"the rows of {part.path} in row group {number}")


def has_equal_bits(want: pa.Table, found: pa.Table) -> bool:
    """Return whether two tables have equal values; NaN equals NaN if its bits do."""

    def as_bits(table: pa.Table) -> pa.Table:
        columns = [
            column.combine_chunks().view(_bits_type(column.type)) if column.num_chunks else column
            for column in table.columns
        ]
        return pa.table(columns, table.column_names)

    return want.equals(found) or bool(as_bits(want).equals(as_bits(found)))


def _bits_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with integers for floating-point numbers, at any depth. Pure."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_bits_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_bits_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_bits_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bits_type(field.type)) for field in kind])
    return _BITS.get(kind, kind)


def compare_videos(parts: Sequence[write.VideoPart], target: Path, rate: Fraction) -> None:
    """Raise WriteError unless each packet of the inspected parts is in the file, at its time."""
    joined = build_index(LocalSource(target))
    num_frames = sum(part.num_frames for part in parts)
    if joined.num_frames != num_frames or not is_regular(joined, rate):
        raise _differ(target, f"{num_frames} frames, frame k at k / {float(rate):g} s")
    made = np.memmap(target, np.uint8, "r")
    for part in parts:
        source = build_index(LocalSource(part.path))
        first, stop = part.start_frame, part.start_frame + part.num_frames
        if source.configs != joined.configs:
            raise _differ(target, f"the codec configuration of {part.path}")
        order = [first + frame for frame in source.frames_of(0, part.num_frames)]
        if joined.frames_of(first, stop) != order:
            raise _differ(target, f"the frames of {part.path} in their order")
        original = np.memmap(part.path, np.uint8, "r")
        sizes, offsets = joined.sizes[first:stop], joined.byte_offsets[first:stop]
        if not np.array_equal(sizes, source.sizes) or not all(
            np.array_equal(made[at : at + size], original[was : was + size])
            for at, was, size in zip(
                offsets.tolist(), source.byte_offsets.tolist(), sizes.tolist(), strict=True
            )
        ):
            raise _differ(target, f"the packets of {part.path}")


def _differ(target: Path, want: str) -> WriteError:
    return WriteError(
        f"{target.name.removesuffix('.part')}: want {want}, found something else after joining. "
        "The file is not kept; please report this with the output of robostream env."
    )
