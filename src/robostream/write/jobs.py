# SPDX-License-Identifier: Apache-2.0
"""Which saved episodes each file of the dataset is made of, and making the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from robostream.meta import DatasetInfo
from robostream.storage import sync_to_disk
from robostream.write.encoder import frame_rate
from robostream.write.file_places import FilePlace
from robostream.write.join_data import join_rows, split_rows
from robostream.write.join_video import VideoPart, join_videos, split_videos
from robostream.write.staging import (
    StagedEpisode,
    StagingFolder,
    place_whole,
    remove_files,
    rows_path,
    video_path,
)

DATA = ""  # the stream of rows; every other stream is named by its camera


@dataclass(frozen=True, slots=True)
class JoinJob:
    """A file of the dataset and the episodes it is made of.

    Attributes:
        stream: The camera of a video; empty for rows.
    """

    stream: str
    place: FilePlace
    episodes: tuple[StagedEpisode, ...]

    def relative_path(self, info: DatasetInfo) -> str:
        """Return where the file lies in the dataset."""
        numbers = self.place.chunk, self.place.file
        is_data = self.stream == DATA
        return info.data_file(*numbers) if is_data else info.video_file(self.stream, *numbers)


def all_jobs(episodes: Sequence[StagedEpisode]) -> list[JoinJob]:
    """Return one job per file, in the order the files begin. Pure."""
    grouped: dict[tuple[str, FilePlace], list[StagedEpisode]] = {}
    for episode in episodes:
        for stream, place in _places(episode).items():
            grouped.setdefault((stream, place), []).append(episode)
    return [JoinJob(*name, tuple(members)) for name, members in grouped.items()]


def closed_jobs(episodes: Sequence[StagedEpisode]) -> list[JoinJob]:
    """Return the files that are complete since the last episode, which went to others. Pure."""
    if len(episodes) < 2:
        return []
    before, last = _places(episodes[-2]), _places(episodes[-1])
    return [
        JoinJob(stream, place, _members(episodes[:-1], stream, place))
        for stream, place in before.items()
        if place != last[stream]
    ]


def run_job(job: JoinJob, staging: StagingFolder, info: DatasetInfo) -> None:
    """Make the file, unless it is made already, then delete the parts it was made of."""
    relative = job.relative_path(info)
    target = staging.ready / relative
    sources = [part_path(staging, episode, job.stream) for episode in job.episodes]
    if not target.exists():
        aside = staging.aside / relative.replace("/", "+")
        aside.parent.mkdir(parents=True, exist_ok=True)
        if job.stream == DATA:
            join_rows(sources, aside)
        else:
            join_videos(_video_parts(job, sources), aside, rate=frame_rate(info.fps))
        place_whole(aside, target)
    remove_files(sources)


def split_file(job: JoinJob, staging: StagingFolder, info: DatasetInfo) -> None:
    """Split a file that was made: bring back the parts it was made of, then delete it."""
    target = staging.ready / job.relative_path(info)
    staging.aside.mkdir(parents=True, exist_ok=True)
    asides = [staging.aside / f"part-{episode.saved_as}" for episode in job.episodes]
    if job.stream == DATA:
        split_rows(target, asides)
    else:
        split_videos(target, _video_parts(job, asides), rate=frame_rate(info.fps))
    for aside, episode in zip(asides, job.episodes, strict=True):
        place_whole(aside, part_path(staging, episode, job.stream))
    target.unlink()
    sync_to_disk(target.parent)


def _places(episode: StagedEpisode) -> dict[str, FilePlace]:
    return {DATA: episode.data, **{key: video.place for key, video in episode.videos.items()}}


def _members(
    episodes: Sequence[StagedEpisode], stream: str, place: FilePlace
) -> tuple[StagedEpisode, ...]:
    run = takewhile(lambda episode: _places(episode)[stream] == place, reversed(episodes))
    return tuple(run)[::-1]


def part_path(staging: StagingFolder, episode: StagedEpisode, stream: str) -> Path:
    """Return the file of a saved episode that holds a stream, until it is joined."""
    folder = staging.episode(episode.saved_as)
    return rows_path(folder) if stream == DATA else video_path(folder, stream)


def _video_parts(job: JoinJob, sources: Sequence[Path]) -> list[VideoPart]:
    return [
        VideoPart(
            path=source,
            start_frame=episode.videos[job.stream].start_frame,
            num_frames=episode.num_frames,
            reorder_frames=episode.videos[job.stream].reorder_frames,
        )
        for episode, source in zip(job.episodes, sources, strict=True)
    ]
