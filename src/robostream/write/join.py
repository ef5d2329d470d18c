# SPDX-License-Identifier: Apache-2.0
"""Joins saved episodes into the files of the dataset, and splits joined files again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import pyarrow as pa

from robostream.errors import WriteError
from robostream.meta import DatasetInfo
from robostream.storage import sync_to_disk
from robostream.write.encoder import frame_rate
from robostream.write.rows import join_rows, split_rows
from robostream.write.saved_episodes import FilePlace, StagedEpisode
from robostream.write.staging import StagingFolder, move_durably, part_path


@dataclass(frozen=True, slots=True)
class VideoPart:
    """One episode's video, or rows, and the frame of the joined file at which it starts."""

    path: Path
    start_frame: int
    num_frames: int
    reorder_frames: int


@dataclass(frozen=True, slots=True)
class JoinJob:
    """A file of a dataset, with the numbers and files of the episodes in it.

    Attributes:
        camera: None for a file of rows.
        path: The file's path in the dataset.
    """

    camera: str | None
    path: str
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
    if job.camera is None:
        split_rows(joined, [temp.path for temp in temps])
    else:
        split_videos(joined, temps, rate=job.rate)
    for temp, part in zip(temps, job.parts, strict=True):
        move_durably(temp.path, part.path)
    joined.unlink()
    sync_to_disk(joined.parent)


def join_videos(parts: Sequence[VideoPart], target: Path, *, rate: Fraction) -> None:
    """Write one MP4, its index first, in which frame k is shown at exactly k / rate.

    The parts must follow one another without a gap and have equal codec parameters.
    """
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
