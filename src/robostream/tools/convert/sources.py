# SPDX-License-Identifier: Apache-2.0
"""What the files of each v2.x episode hold, and which file of the copy each goes to."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream.assemble import check_episode, check_times
from robostream.decode import FrameIndex, build_index
from robostream.errors import DamagedFileError, DataFileError, MissingFileError, VideoFileError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.storage import LocalSource
from robostream.write import FilePlace, FileTotals, VideoPart, frame_rate

logger = logging.getLogger(__name__)

# What says which frames the rows of a file are.
_NUMBERS = pa.schema(
    [("episode_index", pa.int64()), ("frame_index", pa.int64()), ("timestamp", pa.float64())]
)
_UNCONVERTED = "robostream also streams the dataset as it is, without a conversion."


@dataclass(frozen=True, slots=True)
class SourceEpisode:
    """The files of an episode by camera; None stands for its rows."""

    number: int
    num_frames: int
    files: Mapping[str | None, Path]


@dataclass(frozen=True, slots=True)
class EpisodeFile:
    """What a file of an episode holds.

    Attributes:
        num_frames: Its rows, or the frames of the video, which may be more.
        reorder_frames: Most frames stored ahead of one that is shown earlier.
        parameters: A digest of its schema or codec; files with equal ones can be joined.
    """

    path: Path
    size_bytes: int
    num_frames: int
    reorder_frames: int
    parameters: str


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """The file of the copy that an episode's file becomes part of, and the part."""

    place: FilePlace
    part: VideoPart


def list_episodes(meta: LeRobotDatasetMetadata, root: Path) -> list[SourceEpisode]:
    """Return the files of every episode, as the templates of info.json name them."""
    return [
        SourceEpisode(
            number,
            int(meta.episodes["length"][number]),
            {None: root / meta.get_data_file_path(number)}
            | {key: root / meta.get_video_file_path(number, key) for key in meta.video_keys},
        )
        for number in range(meta.total_episodes)
    ]


def warn_of_losses(meta: LeRobotDatasetMetadata, first: SourceEpisode) -> None:
    """Log a warning of what v3.0 files do not take: undeclared columns, and sound."""
    undeclared = sorted({*pq.read_schema(first.files[None]).names} - {*meta.features})
    if undeclared:
        logger.warning(
            "%s: the columns %s are not in info.json, so they are left out",
            *(first.files[None], ", ".join(undeclared)),
        )
    loud = [key for key in meta.video_keys if sound_blocks(meta.features[key])]
    if loud:
        logger.warning("%s: the sound of %s is left out", meta.root, ", ".join(loud))


def sound_blocks(feature: Mapping[str, Any]) -> list[str]:
    """Return the blocks of a camera in info.json that say its videos have sound. Pure."""
    blocks = ("info", "video_info")  # early recorders of v2.0 wrote the second
    return [name for name in blocks if (feature.get(name) or {}).get("has_audio")]


def inspect_episode(
    episode: SourceEpisode, columns: Sequence[str], fps: float
) -> dict[str | None, EpisodeFile]:
    """Return what the files of an episode hold.

    Raises:
        DataFileError: The rows are not those of the episode.
        VideoFileError: A video cannot be joined with others without moving its frames in time.
    """
    return {
        key: _inspect_rows(path, episode, columns, fps)
        if key is None
        else _inspect_video(path, episode, frame_rate(fps))
        for key, path in episode.files.items()
    }


def stored_schema(path: Path, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns of a data file, without metadata of the file."""
    schema = pq.read_schema(path)
    return pa.schema([schema.field(name) for name in columns])


def _inspect_rows(
    path: Path, episode: SourceEpisode, columns: Sequence[str], fps: float
) -> EpisodeFile:
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
    return EpisodeFile(path, path.stat().st_size, metadata.num_rows, 0, _digest(str(schema)))


def _inspect_video(path: Path, episode: SourceEpisode, rate: Fraction) -> EpisodeFile:
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
            f"moving frames in time. {_UNCONVERTED}"
        )
    setup = index.configs[0]
    parameters = f"{setup.decoder} {setup.width}x{setup.height} {setup.extradata.hex()}"
    return EpisodeFile(
        path,
        index.file_bytes,
        index.num_frames,
        reorder_frames=int(max(np.arange(len(stored)) - stored)),
        parameters=_digest(parameters),
    )


def is_regular(index: FrameIndex, rate: Fraction) -> bool:
    """Return whether frame k is shown at exactly k / rate. Pure."""
    ticks = index.time_base * rate
    frames = np.arange(index.num_frames, dtype=np.int64)
    shown = index.pts.astype(np.int64) * ticks.numerator
    return np.array_equal(shown, frames * ticks.denominator)


def place_files(
    episodes: Sequence[Mapping[str | None, EpisodeFile]], info: DatasetInfo
) -> list[dict[str | None, PlacedFile]]:
    """Return where each file of each episode goes, by the size limits of `info`. Pure.

    An episode is never divided. A file that would exceed its limit, or whose parameters differ,
    begins a new file of the copy.
    """
    placed = {
        key: _place(
            [files[key] for files in episodes],
            limit_mb=info.data_files_size_in_mb if key is None else info.video_files_size_in_mb,
            chunks_size=info.chunks_size,
        )
        for key in episodes[0]
    }
    return [{key: placed[key][number] for key in placed} for number in range(len(episodes))]


def _place(files: Sequence[EpisodeFile], *, limit_mb: float, chunks_size: int) -> list[PlacedFile]:
    totals, placed = FileTotals(FilePlace(0, 0)), []
    for file in files:
        totals = totals.with_episode(
            file.size_bytes,
            file.num_frames,
            expected_bytes=file.size_bytes,
            limit_mb=limit_mb,
            chunks_size=chunks_size,
            parameters=file.parameters,
        )
        start = totals.num_frames - file.num_frames
        part = VideoPart(file.path, start, file.num_frames, file.reorder_frames)
        placed.append(PlacedFile(totals.place, part))
    return placed


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
