# SPDX-License-Identifier: Apache-2.0
"""Footers of Parquet files and sample tables of MP4 files, read and checked: no row, no frame."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream.assemble import EpisodeRows, OpenedDataset, RowReader, check_schema
from robostream.config import TOLERANCE_S
from robostream.decode import FrameIndex, VideoFiles, VideoSource, build_index, has_codec
from robostream.errors import DataFileError, DatasetError, StorageError
from robostream.meta import LeRobotDatasetMetadata, OpenParquet, image_shape
from robostream.storage import FileOpener
from robostream.tools.doctor.content import FileProblem, explain_file
from robostream.tools.doctor.findings import Item, Remarks, check, error, note, shorten, warning

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Decoding one frame at random costs half of a GOP on average.
LONG_GOP_FRAMES = 30
# Reading an episode reads its whole row groups; so many times its length are too much.
_LONG_GROUP = 4
# H.264 profiles whose avcC box ends with the chroma format and the bits.
_HIGH_PROFILES = (100, 110, 122, 144, 244)
_CHROMA = ("grey", "4:2:0", "4:2:2", "4:4:4")
# After the last frame there may be a box of padding; an index takes more.
_PADDING_BYTES = 64
_OPEN_FILES = 64
# No file has more; a damaged table may say so.
_MOST_FRAMES = 20_000_000


class DatasetFiles:
    """An opened dataset, and what opens its files. Thread-safe."""

    def __init__(self, dataset: OpenedDataset) -> None:
        self.dataset, self.meta = dataset, dataset.meta
        self.opener = dataset.file_opener()
        self.videos = VideoFiles(self.opener.open, max_files=_OPEN_FILES)

    def read_rows(self, keys: Sequence[str], episode: int) -> EpisodeRows:
        """Return some columns of an episode."""
        with closing(RowReader(self.dataset, self.opener, keys)) as reader:
            return reader.read(episode)


@dataclass(frozen=True, slots=True)
class ListedFile(Item):
    """A file of rows or a video, and the episodes that the table puts into it."""

    meta: LeRobotDatasetMetadata
    camera: str  # the camera of a video; empty for rows
    file: str
    episodes: Int64s
    problem: FileProblem | None = None

    def column(self, name: str) -> Any:
        """Return a column of the episode table, an array, for the file's episodes."""
        return self.meta.episodes[name][self.episodes]

    def frames(self) -> tuple[Int64s, Int64s]:
        """Return the episode and the frame number of all rows that should be in the file."""
        lengths = self.column("length")
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(self.episodes, lengths), np.arange(len(first)) - first


@dataclass(frozen=True, slots=True)
class Footer(Item):
    """The footer of a Parquet file: pyarrow's metadata and schema."""

    listed: ListedFile
    metadata: Any
    schema: pa.Schema

    def group_rows(self) -> Int64s:
        """Return the number of rows of each row group."""
        groups = range(self.metadata.num_row_groups)
        return np.array([self.metadata.row_group(group).num_rows for group in groups], np.int64)

    def bounds(self, key: str) -> Floats:
        """Return the smallest and largest value of a column in each row group, NaN if unknown."""
        paths = [self.metadata.schema.column(at).path for at in range(self.metadata.num_columns)]
        found = []
        for group in range(self.metadata.num_row_groups if key in paths else 0):
            stats = self.metadata.row_group(group).column(paths.index(key)).statistics
            known = stats is not None and stats.has_min_max
            ends = (stats.min_raw, stats.max_raw) if known else ()
            is_number = ends and isinstance(ends[0], int | float)
            found.append(ends if is_number else (math.nan, math.nan))
        return np.array(found, np.float64).reshape(-1, 2) + 0.0  # Parquet stores 0 as -0


@dataclass(frozen=True, slots=True)
class SampleTable(Item):
    """The index of an MP4, matched with the times of its episodes' rows."""

    listed: ListedFile
    index: FrameIndex
    numbers: Int64s  # the frame nearest to the time of each row
    errors_s: Floats  # the distance between the two times

    def episodes_of(self, is_concerned: npt.NDArray[np.bool_]) -> list[int]:
        """Return the episodes of some rows."""
        return [int(episode) for episode in np.unique(self.listed.frames()[0][is_concerned])]

    def is_shared(self) -> npt.NDArray[np.bool_]:
        """Return for each row whether its frame is that of another row too."""
        is_found = self.errors_s <= TOLERANCE_S
        uses = np.bincount(self.numbers[is_found], minlength=self.index.num_frames)
        shared: npt.NDArray[np.bool_] = (uses[self.numbers] > 1) & is_found
        return shared

    def num_unused(self) -> int:
        """Return how many frames belong to no row."""
        return self.index.num_frames - len(np.unique(self.numbers))


def list_files(meta: LeRobotDatasetMetadata) -> Iterator[ListedFile]:
    """Yield all files that episodes refer to, those of rows first."""
    for camera in ("", *meta.video_keys):
        prefix = f"videos/{camera}" if camera else "data"
        columns = [meta.episodes[f"{prefix}/{name}_index"] for name in ("chunk", "file")]
        places, file_of = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        order = np.argsort(file_of.reshape(-1), kind="stable")
        edges = np.searchsorted(file_of.reshape(-1)[order], np.arange(1, len(places)))
        for place, episodes in zip(places.tolist(), np.split(order, edges), strict=True):
            path = meta.info.video_file(camera, *place) if camera else meta.info.data_file(*place)
            yield ListedFile(meta, camera, path, episodes)


def read_file(opener: FileOpener, listed: ListedFile) -> ListedFile | Footer | SampleTable:
    """Return what a file says of itself; with a problem if it cannot be read. Thread-safe."""
    source = opener.open(listed.file)
    try:
        if not listed.camera:
            with OpenParquet(source) as parquet:
                _check_lengths(listed, parquet.metadata.num_rows)
                return Footer(listed, parquet.metadata, parquet.schema_arrow)
        index = build_index(VideoSource(source))
        _check_lengths(listed, index.num_frames)
        return match_table(listed, index)
    except (DatasetError, StorageError) as failure:
        kind = "mp4" if listed.camera else "parquet"
        return replace(listed, problem=explain_file(opener, listed.file, kind, failure))


def _check_lengths(listed: ListedFile, found: int) -> None:
    """Raise if the table gives a file more frames than the checks could hold in memory."""
    if (wanted := int(listed.column("length").sum())) > max(_MOST_FRAMES, 2 * found):
        raise DataFileError(f"{listed.file}: has {found} frames, the table gives it {wanted}.")


def match_table(listed: ListedFile, index: FrameIndex) -> SampleTable:
    """Return the frames of a video nearest to its episodes' rows."""
    starts_s = listed.column(f"videos/{listed.camera}/from_timestamp")
    wanted_s = np.repeat(starts_s, listed.column("length")) + listed.frames()[1] / listed.meta.fps
    numbers = index.match(wanted_s, tolerance_s=math.inf, where=listed.camera)
    return SampleTable(listed, index, numbers, np.abs(index.times_s()[numbers] - wanted_s))


@check(why="its episodes cannot be loaded")
def files(listed: ListedFile) -> Remarks:
    """Every file is there and is a readable Parquet file or MP4."""
    if (problem := listed.problem) is not None:
        yield error(f"{problem.what} ({problem.kind})", cure=problem.cure)


@check(why="its episodes cannot be loaded")
def columns(footer: Footer) -> Remarks:
    """Every Parquet file has the columns of info.json, each once and of the declared type."""
    names, features = footer.schema.names, footer.listed.meta.features
    for key in (key for key, entry in features.items() if entry["dtype"] != "video"):
        if (found := names.count(key)) != 1:
            what = f"the column {key} is there {found} times" if found else f"no column {key}"
            yield error(f"{what}.")
            continue
        try:
            check_schema(footer.schema, key, features[key])
        except DataFileError as failure:
            yield error(str(failure))
    if strange := [name for name in dict.fromkeys(names) if name not in features]:
        tell = note if footer.listed.meta.info.is_v2 else warning
        what = "LeRobot refuses a v3.0 dataset with columns that info.json lacks"
        yield tell(f"{what}: {shorten(strange)}.")


@check(why="rows of one episode are taken for those of another")
def row_counts(footer: Footer) -> Remarks:
    """A Parquet file has as many rows as its episodes have frames."""
    ends = np.cumsum(footer.listed.column("length"))
    found, wanted = footer.metadata.num_rows, int(ends[-1])
    if found != wanted:
        lacking = footer.listed.episodes[ends > found].tolist()
        yield error(f"the file has {found} rows, its episodes have {wanted} frames.", lacking)


@check(why="an episode gets actions or frames of another moment")
def row_places(footer: Footer) -> Remarks:
    """A Parquet file holds the rows that the table puts into it, by the bounds in its footer."""
    meta = footer.listed.meta
    episodes, frames = footer.listed.frames()
    group_rows = footer.group_rows()
    is_expected = (group_rows > 0) & (np.cumsum(group_rows) <= len(episodes))
    group_rows = group_rows[is_expected]
    edges = np.cumsum(group_rows) - group_rows
    index = meta.episodes["dataset_from_index"][episodes] + frames
    wanted = {"episode_index": episodes, "frame_index": frames, "index": index}
    for key, values in (wanted | {"timestamp": frames / meta.fps}).items():
        found = footer.bounds(key)
        if not len(found) or not len(edges):
            continue  # `columns` and `row_counts`
        found, values = found[is_expected], values[: group_rows.sum()]
        want = np.stack([np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)], 1)
        slack = TOLERANCE_S + np.spacing(want.astype(np.float32)) if key == "timestamp" else 0
        is_wrong = (np.abs(found - want) > slack).any(axis=1)
        if is_wrong.any():
            (low, high), (want_low, want_high) = (bound[is_wrong][0] for bound in (found, want))
            concerned = np.unique(episodes[: len(values)][np.repeat(is_wrong, group_rows)]).tolist()
            what = f"{key} is {low:.10g} to {high:.10g}, want {want_low:.10g} to {want_high:.10g}."
            yield error(what, concerned)
            return


@check(why="the instruction of a frame cannot be found")
def task_numbers(footer: Footer) -> Remarks:
    """The task numbers of rows are in the table of tasks."""
    found, count = footer.bounds("task_index"), len(footer.listed.meta.tasks)
    if (found < 0).any() or (found >= count).any():
        yield error(f"rows have the task number {np.nanmax(found):g}, there are {count} tasks.")


@check(why="reading one episode reads many", cure="Nothing is wrong; a cache_dir helps.")
def row_groups(footer: Footer) -> Remarks:
    """Row groups hold about an episode each, or have a page index."""
    longest, most = footer.group_rows().max(initial=0), footer.listed.column("length").max()
    is_long = longest > _LONG_GROUP * most
    if is_long and not footer.metadata.row_group(0).column(0).has_offset_index:
        yield note("row groups hold many episodes each, without a page index.")


@check(why="the policy sees frames of another moment")
def frame_times(table: SampleTable) -> Remarks:
    """Each row has a frame at its time."""
    is_missed = table.errors_s > TOLERANCE_S
    if is_missed.any():
        most_s, count, unused = table.errors_s.max(), table.index.num_frames, table.num_unused()
        tenth = -(-len(table.errors_s) // 10)
        is_drift = table.errors_s[-tenth:].min() > 2 * table.errors_s[:tenth].max()
        how = "drifts: " if is_drift and most_s * table.listed.meta.fps < 0.5 else ""
        what = f"{how}{is_missed.sum()} rows have no frame at their time; the nearest are up to "
        what += f"{most_s:.6g} s off, of {count} frames."
        what += f" {unused} frames belong to no episode: others may be shifted." if unused else ""
        yield error(what, table.episodes_of(is_missed))


@check(why="one frame stands for two moments")
def frame_overlaps(table: SampleTable) -> Remarks:
    """Each frame has its own time and belongs to one episode."""
    is_shared = table.is_shared()
    firsts = table.numbers[table.listed.frames()[1] == 0]
    if same := int(np.count_nonzero(np.diff(table.index.pts) <= 0)):
        yield error(f"{same} frames have the time of the frame before.")
    elif is_shared.any():
        yield warning("spans of episodes share frames.", table.episodes_of(is_shared))
    elif (np.diff(firsts) < 0).any():
        yield warning("the video has its episodes in another order than the table.")


@check(why="frames may have been lost before an episode")
def frame_leftovers(table: SampleTable) -> Remarks:
    """Each frame of a video belongs to an episode."""
    unused = table.num_unused()
    if unused and (table.errors_s <= TOLERANCE_S).all():
        yield warning(f"{unused} of {table.index.num_frames} frames belong to no episode.")


@check(why="it cannot be decoded", cure="Install PyAV from PyPI, or re-encode.")
def decoders(table: SampleTable) -> Remarks:
    """This FFmpeg has a decoder for each video."""
    for config in table.index.configs:
        if not has_codec(config.decoder, "r"):
            yield error(f"the FFmpeg in PyAV has no decoder {config.decoder}.")


@check(why="sizes do not fit one batch", cure="Correct info.json, or resize=.")
def video_sizes(table: SampleTable) -> Remarks:
    """All videos of a camera have the size that info.json declares."""
    _, height, width = image_shape(table.listed.meta.info.features[table.listed.camera])
    for wide, tall in dict.fromkeys((one.width, one.height) for one in table.index.configs):
        if (wide, tall) != (width, height):
            yield warning(f"info.json declares {width}x{height}, the video is {wide}x{tall}.")


@check(
    why="reading and decoding random frames takes longer",
    cure="Nothing is wrong; robostream recode makes a copy that is read faster.",
)
def video_layout(table: SampleTable) -> Remarks:
    """Videos are stored so that random frames are read and decoded fast."""
    index, meta, camera = table.index, table.listed.meta, table.listed.camera
    pixels = {describe_pixels(one.extradata, one.decoder) for one in index.configs}
    has_rare_pixels = camera not in meta.depth_keys and pixels - {"4:2:0 8 bit", None}
    declared = (meta.info.features[camera].get("info") or {}).get("video.codec")
    codecs = {config.decoder.replace("libdav1d", "av1") for config in index.configs}
    has_other_codec = declared and codecs != {declared}
    is_long = index.gop_lengths().max() > LONG_GOP_FRAMES
    found = {
        f"key frames are more than {LONG_GOP_FRAMES} frames apart.": is_long,
        "there are B-frames.": index.packets is not None,
        "there are open GOPs: frames shown before their key frame.": count_open_gops(index),
        "the index (moov box) comes after the frames.": is_index_last(index),
        f"the pixels are {', '.join(map(str, pixels))}, not 4:2:0 8 bit.": has_rare_pixels,
        f"the codec is {', '.join(codecs)}, info.json says {declared}.": has_other_codec,
    }
    yield from (note(what) for what, holds in found.items() if holds)


def count_open_gops(index: FrameIndex) -> int:
    """Return how many GOPs have frames that are shown before their key frame. Pure."""
    if index.packets is None:
        return 0
    edges = [*index.starts.tolist(), len(index.sizes)]
    return sum(
        any(0 <= frame < first for frame in index.frames_of(edges[gop], edges[gop + 1]))
        for gop, first in enumerate(index.start_frames.tolist())
    )


def is_index_last(index: FrameIndex) -> bool:
    """Return whether the index of the file comes after its frames. Pure."""
    last_byte = int((index.byte_offsets.astype(np.int64) + index.sizes).max())
    return index.file_bytes - last_byte > _PADDING_BYTES


def describe_pixels(header: bytes, decoder: str) -> str | None:
    """Return chroma and bits of a stream, such as "4:2:0 8 bit", from its extradata. Pure."""
    if decoder == "libdav1d" and len(header) > 2:
        is_grey, wide, tall = (header[2] >> bit & 1 for bit in (4, 3, 2))
        bits = 8 + 2 * (header[2] >> 6 & 1) + 2 * (header[2] >> 5 & 1)
        return f"{_CHROMA[0 if is_grey else 3 - wide - tall]} {bits} bit"
    if decoder == "hevc" and len(header) > 17:
        return f"{_CHROMA[header[16] & 3]} {8 + (header[17] & 7)} bit"
    if decoder == "h264" and len(header) > 4:
        if header[1] not in _HIGH_PROFILES:
            return "4:2:0 8 bit"
        if (header[-4] & 0xFC, header[-3] & 0xF8) == (0xFC, 0xF8):
            return f"{_CHROMA[header[-4] & 3]} {8 + (header[-3] & 7)} bit"
    return None
