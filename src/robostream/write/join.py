# SPDX-License-Identifier: Apache-2.0
"""An episode's rows as Parquet; joins saved episodes into the dataset's files, and splits these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream.errors import WriteError
from robostream.meta import DatasetInfo, Features
from robostream.storage import sync_to_disk
from robostream.write.encoder import frame_rate
from robostream.write.frames import language_fields
from robostream.write.saved_episodes import FilePlace, StagedEpisode
from robostream.write.staging import StagingFolder, move_durably, part_path

# LeRobot's settings, plus checksums, so that readers detect damaged pages.
PARQUET_OPTIONS = {"compression": "snappy", "use_dictionary": True, "write_page_checksum": True}
# Arrow's JSON type came with pyarrow 19; before it, the same texts are plain strings.
_JSON = pa.json_() if hasattr(pa, "json_") else pa.string()
_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_TEXT = {"dtype": "string", "_type": "Value"}
_LANGUAGE_DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "timestamp": {"dtype": "float32", "_type": "Value"},
    "tool_calls": {"feature": {"_type": "Json"}, "_type": "List"},
}
# An Arrow array holds at most 2 GiB of bytes, so a column of images consists of chunks.
_IMAGES_PER_CHUNK = 256


def row_schema(features: Features) -> pa.Schema:
    """Return the schema of the data files, with the metadata that `datasets` reads. Pure."""
    stored = {n: _describe(n, entry) for n, entry in features.items() if entry["dtype"] != "video"}
    described = {name: description for name, (_, description) in stored.items()}
    fields = [field for field, _ in stored.values()]
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": described}})})


def row_table(features: Features, columns: Mapping[str, Any]) -> pa.Table:
    """Return an episode's rows. Pure."""
    # A column is an array of numbers, frames first, or a list: of texts, of language rows, or of
    # images with their names.
    schema = row_schema(features)
    arrays = [_column(field, features[field.name], columns[field.name]) for field in schema]
    return pa.table(arrays, schema=schema)


def language_array(name: str, frames: Sequence[Sequence[Mapping[str, Any]]]) -> pa.Array:
    """Return a language column from the checked rows of each frame. Pure."""
    # pa.array() cannot make values of the JSON type, but their texts can be cast to it.
    return pa.array(frames, _language_type(name, pa.string())).cast(_language_type(name))


def read_rows(path: Path) -> pa.Table:
    """Return all rows of a file; raises a pyarrow error if a page is damaged."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def write_rows(table: pa.Table, target: Path) -> int:
    """Write one episode's rows and return the compressed bytes of its row group."""
    with pq.ParquetWriter(target, table.schema, **PARQUET_OPTIONS) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    group = pq.read_metadata(target).row_group(0)
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def join_rows(parts: Sequence[Path], target: Path, schema: pa.Schema | None = None) -> None:
    """Write the rows of several episodes into one file, one row group each."""
    # The file has the columns and metadata of `schema`; by default those of the first part.
    chosen = pq.read_schema(parts[0]) if schema is None else schema
    with pq.ParquetWriter(target, chosen, **PARQUET_OPTIONS) as writer:
        for part in parts:
            table = read_rows(part).select(chosen.names)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def _describe(name: str, entry: Mapping[str, Any]) -> tuple[pa.Field, dict[str, Any]]:
    """Return a feature's Arrow field and its description in the `datasets` library."""
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype == "image":
        return pa.field(name, _IMAGE_TYPE), {"_type": "Image"}
    if dtype == "language":
        row = {f: _LANGUAGE_DESCRIPTIONS.get(f, _TEXT) for f in language_fields(name)}
        return pa.field(name, _language_type(name)), {"feature": row, "_type": "List"}
    is_text = dtype == "string"
    value = pa.string() if is_text else pa.from_numpy_dtype(np.dtype(dtype))
    value_name = "string" if is_text else np.dtype(dtype).name
    described = {"dtype": value_name, "_type": "Value"}
    if shape == (1,):
        return pa.field(name, value), described
    if len(shape) == 1:
        listed = {"feature": described, "length": shape[0], "_type": "List"}
        return pa.field(name, pa.list_(value, shape[0])), listed
    for _ in shape:
        value = pa.list_(value)
    # `datasets` recognises arrays of 2 to 5 axes by an extension type in the field's metadata.
    kind = f"Array{len(shape)}D"
    extension = {
        "ARROW:extension:name": f"datasets.features.features.{kind}ExtensionType",
        "ARROW:extension:metadata": json.dumps([list(shape), value_name]),
    }
    described = {"shape": list(shape), "dtype": value_name, "_type": kind}
    return pa.field(name, value, metadata=extension), described


def _language_type(name: str, call_type: pa.DataType = _JSON) -> pa.DataType:
    types = {"timestamp": pa.float32(), "tool_calls": pa.list_(call_type)}
    return pa.list_(pa.struct([(f, types.get(f, pa.string())) for f in language_fields(name)]))


def _column(field: pa.Field, entry: Mapping[str, Any], values: Any) -> Any:
    if entry["dtype"] == "image":
        return _image_column(values)
    if entry["dtype"] == "language":
        return language_array(field.name, values)
    if entry["dtype"] == "string":
        return pa.array(values, field.type)
    shape = tuple(entry["shape"])
    flat = pa.array(values.astype(entry["dtype"], copy=False).reshape(-1))
    if shape == (1,):
        return flat
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(flat, type=field.type)
    for length in reversed(shape):
        offsets = np.arange(0, len(flat) + 1, length, dtype=np.int32)
        flat = pa.ListArray.from_arrays(offsets, flat)
    return flat


def _image_column(images: Sequence[tuple[str, bytes]]) -> pa.ChunkedArray:
    chunks = []
    for start in range(0, len(images), _IMAGES_PER_CHUNK):
        names, contents = zip(*images[start : start + _IMAGES_PER_CHUNK], strict=True)
        arrays = [pa.array(contents, pa.binary()), pa.array(names)]
        chunks.append(pa.StructArray.from_arrays(arrays, fields=list(_IMAGE_TYPE)))
    return pa.chunked_array(chunks, _IMAGE_TYPE)


@dataclass(frozen=True, slots=True)
class VideoPart:
    """One episode's video, or rows, and the frame of the joined file at which it starts."""

    path: Path
    start_frame: int
    num_frames: int
    reorder_frames: int


@dataclass(frozen=True, slots=True)
class JoinJob:
    """A file of a dataset, with the numbers and files of the episodes in it."""

    camera: str | None  # None for a file of rows
    path: str  # in the dataset
    rate: Fraction
    episodes: tuple[int, ...]
    parts: tuple[VideoPart, ...]

    @property
    def num_frames(self) -> int:
        """The rows or frames of all parts."""
        return sum(part.num_frames for part in self.parts)

    def make(self, target: Path, schema: pa.Schema | None = None) -> None:
        """Join the parts into one file; `schema` is that of `join_rows`."""
        if self.camera is None:
            join_rows([part.path for part in self.parts], target, schema)
        else:
            join_videos(self.parts, target, rate=self.rate)


PartOf = Callable[[StagedEpisode, str | None], VideoPart]


def plan_joins(
    episodes: Sequence[StagedEpisode], info: DatasetInfo, part_of: PartOf
) -> list[JoinJob]:
    """Return one job per file, in the order the files begin. Pure."""
    grouped: dict[tuple[str | None, FilePlace], list[StagedEpisode]] = {}
    for episode in episodes:
        for target in episode.places.items():
            grouped.setdefault(target, []).append(episode)
    return [plan_join(key, members, info, part_of) for (key, _), members in grouped.items()]


def plan_join(
    camera: str | None, episodes: Sequence[StagedEpisode], info: DatasetInfo, part_of: PartOf
) -> JoinJob:
    """Return the job of the file that all these episodes become part of. Pure."""
    place = episodes[0].places[camera]
    numbers = place.chunk, place.file
    path = info.data_file(*numbers) if camera is None else info.video_file(camera, *numbers)
    parts = tuple(part_of(episode, camera) for episode in episodes)
    saved_as = tuple(episode.saved_as for episode in episodes)
    return JoinJob(camera, path, frame_rate(info.fps), saved_as, parts)


def saved_part(staging: StagingFolder, episode: StagedEpisode, camera: str | None) -> VideoPart:
    """Return a saved episode's own rows or video, as a part of the joined file."""
    path = part_path(staging.episode(episode.saved_as), camera)
    video = None if camera is None else episode.videos[camera]
    start_frame, reorder_frames = (video.start_frame, video.reorder_frames) if video else (0, 0)
    return VideoPart(path, start_frame, episode.num_frames, reorder_frames)


def run_join(job: JoinJob, staging: StagingFolder) -> None:
    """Make the job's file, unless it exists, then delete its parts."""
    target = staging.ready / job.path
    if not target.exists():
        temp = staging.temp_path(target)
        job.make(temp)
        move_durably(temp, target)
    for part in job.parts:
        part.path.unlink(missing_ok=True)


def undo_join(job: JoinJob, staging: StagingFolder) -> None:
    """Split a joined file into the parts it was made of, then delete it."""
    joined = staging.ready / job.path
    temps = [replace(part, path=staging.temp_path(part.path)) for part in job.parts]
    if job.camera is not None:
        split_videos(joined, temps, rate=job.rate)
    else:
        with pq.ParquetFile(joined, page_checksum_verification=True) as file:
            for group, temp in enumerate(temps):
                write_rows(file.read_row_group(group), temp.path)
    for temp, part in zip(temps, job.parts, strict=True):
        move_durably(temp.path, part.path)
    joined.unlink()
    sync_to_disk(joined.parent)


def join_videos(parts: Sequence[VideoPart], target: Path, *, rate: Fraction) -> None:
    """Write one MP4, its index first, in which frame k is shown at exactly k / rate."""
    # The parts follow one another without a gap and have equal codec parameters.
    # A packet's decode time (dts) must never be later than its presentation time (pts). Decode
    # times count packets, so all of them are shifted by the deepest reordering of any part.
    reorder_frames = max(part.reorder_frames for part in parts)
    with (
        av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output,
        av.open(str(parts[0].path)) as first,
    ):
        stream = output.add_stream_from_template(first.streams.video[0], opaque=True)
        stream.time_base = 1 / rate
        for part in parts:
            first_dts = part.start_frame - reorder_frames
            packets = iter_packets(part.path, rate)
            _mux(packets, output, stream, shift=part.start_frame, first_dts=first_dts)
    _check_length(target, parts, rate)


def split_videos(joined: Path, parts: Sequence[VideoPart], *, rate: Fraction) -> None:
    """Write each part of a joined MP4 to its path: the reverse of `join_videos`."""
    packets = iter_packets(joined, rate)
    with av.open(str(joined)) as source:
        for part in parts:
            with av.open(str(part.path), "w", format="mp4") as output:
                stream = output.add_stream_from_template(source.streams.video[0], opaque=True)
                stream.time_base = 1 / rate
                own = islice(packets, part.num_frames)
                _mux(own, output, stream, shift=-part.start_frame, first_dts=-part.reorder_frames)
            _check_length(part.path, [part], rate)


def iter_packets(path: Path, rate: Fraction) -> Iterator[av.Packet[av.VideoStream]]:
    """Yield a video's packets in stored order, their `pts` counted in frames."""
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        for packet in source.demux(stream):
            if packet.pts is None or packet.time_base is None:
                continue  # the empty packet that ends a stream
            frame = packet.pts * packet.time_base * rate
            if frame.denominator != 1:
                raise WriteError(
                    f"{path}: want every frame at a multiple of {float(1 / rate)} s, found one at "
                    f"{float(frame / rate)} s. Resume the dataset: this excludes the episode."
                )
            packet.pts = int(frame)
            packet.time_base = 1 / rate
            yield packet


def _mux(
    packets: Iterable[av.Packet[Any]],
    output: av.container.OutputContainer,
    stream: av.VideoStream,
    *,
    shift: int,
    first_dts: int,
) -> None:
    """Write packets to a file, their `pts` shifted and their `dts` counted from `first_dts`."""
    for number, packet in enumerate(packets):
        packet.stream = stream
        packet.dts = first_dts + number
        packet.pts = int(packet.pts or 0) + shift
        packet.duration = 1
        output.mux(packet)


def _check_length(target: Path, parts: Sequence[VideoPart], rate: Fraction) -> None:
    want = sum(part.num_frames for part in parts)
    with av.open(str(target)) as joined:
        stream = joined.streams.video[0]
        length_s = (stream.duration or 0) * (stream.time_base or Fraction(0))
        if stream.frames != want or length_s != want / rate:
            raise WriteError(
                f"{target}: want {want} frames over {float(want / rate)} s in the joined video, "
                f"found {stream.frames} over {float(length_s)} s. Each saved episode is still in "
                "its own folder: resume the dataset to join them again."
            )
